"""`ludic doctor`: checks of a server and a model together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import tyro
from rich.table import Table
from rich.text import Text

from ludic_gym.commands.arguments import print_json, screen

if TYPE_CHECKING:
    from ludic_train.cluster.doctor.checks import Finding

# Exit code, for a check before training in a script.
BAD = 1
STYLES = {"good": "green", "bad": "bold red", "skipped": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Compare a vLLM server with the model that it should serve.

    Checks its flags, tokens, and log-probs at several temperatures; then pushes changed
    params to it, checks that it computes with them, and restores its own. Not while a trainer uses
    it. The exit code is 1 if a finding is bad.

    For example:
      ludic doctor --url http://localhost:8000 --model runs/tic-tac-toe
      ludic doctor --url http://localhost:8000 --model Qwen/Qwen3-0.6B --no-push
      ludic doctor --url http://localhost:8000 --model ludic-small --bitwise

    Attributes:
        url: Address of the server.
        model: A run's folder, a folder in Hugging Face format, or a hub id.
        dtype: Precision that the trainer's side computes in.
        push: Push params to the server as well.
        bitwise: Compare bits instead, and name what differs: template, params, their type,
            sampling masks. For a server with `--engine local --exact`.
        json: Print JSON in place of the table.
    """

    url: str
    model: str
    dtype: Literal["float32", "bfloat16"] = "float32"
    push: bool = True
    bitwise: bool = False
    json: bool = False


def main(argv: list[str]) -> int:
    """Examine, print the table; the exit code."""
    options = tyro.cli(DoctorOptions, args=argv, prog="ludic doctor")
    # torch takes seconds, and --help must not wait for it.
    from ludic_train.cluster.doctor.examine import examine

    findings = asyncio.run(
        examine(
            options.url,
            options.model,
            dtype=options.dtype,
            push=options.push,
            bitwise=options.bitwise,
        )
    )
    if options.json:
        print_json([asdict(finding) for finding in findings])
    else:
        screen().print(render(findings))
    return BAD if any(finding.verdict == "bad" for finding in findings) else 0


def render(findings: Sequence[Finding]) -> Table:
    """The findings as a table; markup in a server's texts has no effect."""
    table = Table("check", "verdict", "found", "remedy")
    for each in findings:
        verdict = Text(each.verdict, style=STYLES[each.verdict])
        table.add_row(Text(each.check), verdict, Text(each.found), Text(each.remedy))
    return table
