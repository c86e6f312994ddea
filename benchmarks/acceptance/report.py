"""The report of an acceptance: JSON for programs, Markdown for people."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from acceptance.bench import Bench
from acceptance.checks import Found

Verdict = Literal["passed", "failed", "not run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """End of a step.

    reason: for which it was not run, or could not go on; "" without one. seconds: that it took.
    commands: as a user types them.
    """

    step: str
    shows: str
    reason: str
    seconds: float
    commands: Sequence[str]
    found: Found
    was_run: bool

    @property
    def verdict(self) -> Verdict:
        """A step passes if it went to its end and all its assertions hold."""
        if not self.was_run:
            return "not run"
        return "failed" if self.reason or not all(c.good for c in self.found.checks) else "passed"


def write_report(bench: Bench, outcomes: Sequence[Outcome], vllm: str | None) -> list[Path]:
    """Write report.json and report.md to the bench's folder; their paths.

    vllm: its version, if one was used.
    """
    machine = machine_facts(bench, vllm)
    known = {
        "machine": machine,
        "steps": [{"verdict": each.verdict, **asdict(each)} for each in outcomes],
    }
    as_json, as_markdown = bench.folder / "report.json", bench.folder / "report.md"
    as_json.write_text(json.dumps(known, indent=2, default=str) + "\n", encoding="utf-8")
    as_markdown.write_text("\n".join(markdown(machine, outcomes)) + "\n", encoding="utf-8")
    return [as_json, as_markdown]


def machine_facts(bench: Bench, vllm: str | None) -> dict[str, Any]:
    """The hardware and the versions that a report is of."""
    facts: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if bench.on_card else "CPU",
        "cards": bench.cards,
        "size": bench.size,
        "engine": bench.engine,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    facts |= {"CUDA": torch.version.cuda} if bench.on_card else {}
    return facts | ({"vLLM": vllm} if vllm else {})


def markdown(machine: Mapping[str, Any], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Lines of the report for people."""
    yield ", ".join(f"{name} {value}" for name, value in machine.items())
    yield from ("", "| step | shows | verdict | seconds |", "|---|---|---|---|")
    for each in outcomes:
        verdict = f"{each.verdict}: {each.reason}" if each.verdict == "not run" else each.verdict
        yield f"| {each.step} | {each.shows} | {verdict} | {each.seconds:.0f} |"
    yield from (
        "",
        "| run | trained tokens/s | peak GiB | KL | push s | push GB/s |",
        "|---" * 6 + "|",
    )
    for name, figures in _runs(outcomes):
        columns = ("trained tokens/s", "peak GiB", "KL", "push s", "push GB/s")
        yield f"| {name} | " + " | ".join(_number(figures[c]) for c in columns) + " |"
    for each in outcomes:
        if each.commands:
            yield from _details(each)


def _runs(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name and figures of each training run."""
    for each in outcomes:
        for name, figures in each.found.figures.items():
            if "compute" in figures:
                yield name, figures


def _details(outcome: Outcome) -> Iterator[str]:
    """Commands and assertions of a step, and its figures that no table has."""
    yield from ("", f"## {outcome.step}", "", "```sh", *outcome.commands, "```", "")
    if outcome.reason:
        yield from ("```text", outcome.reason, "```", "")
    if outcome.found.checks:
        yield from ("| assertion | found | wanted | |", "|---|---|---|---|")
    for check in outcome.found.checks:
        cells = (check.name, check.found, check.wanted, "ok" if check.good else "FAILED")
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
    for name, figures in outcome.found.figures.items():
        shown = figures["seconds"] if "compute" in figures else figures
        listed = ", ".join(f"{key} {_number(value)}" for key, value in shown.items())
        title = f"{name}, seconds" if "compute" in figures else name
        yield from ("", f"{title}: {listed}")


def _number(value: object) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.3g}"
    return str(value)
