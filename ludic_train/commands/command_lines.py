"""Command lines of `ludic`: read before their options are known, changed, and written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which

from ludic_train.runs.folder import is_resumable
from ludic_train.runs.machine import Machine


def names_and_options(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names before the first option, and the options."""
    end = next((i for i, word in enumerate(argv) if word.startswith("-")), len(argv))
    return list(argv[:end]), list(argv[end:])


def value_of(options: Sequence[str], flag: str) -> str | None:
    """The last value of an option, as its word or the next one; None where it is not there."""
    last = None
    for word, following in zip(options, [*options[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == flag:
            last = value if equals else following
    return last


def resume_command(
    out: Path, machine: Machine | None = None, gpus: int = 1, servers: int = 0
) -> str:
    """The command that resumes a run, without the queue's URL, which may hold a password."""
    machine = machine or Machine()
    if not is_resumable(out):
        return "there was nothing to save yet: start it again with the same command"
    ranks = f" --gpus {gpus}" if gpus > 1 else ""
    ranks += f" --servers {servers}" if servers else ""
    options = ["--queue"] if machine.queue else []
    options += ["--exact"] if machine.exact else []
    options += ["--offload"] if machine.offload else []
    options += ["--engine"] if machine.engine != Machine().engine else []
    also = f", and {' and '.join(options)} as it was started" if options else ""
    return f"resume with: {program()} train --out {out} --resume{ranks}{also}"


def program() -> str:
    """Command line name of `ludic`: its path, where the shell would not find it by its name."""
    started_as = Path(sys.argv[0])
    return str(started_as) if started_as.name == "ludic" and not which("ludic") else "ludic"
