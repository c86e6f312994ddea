"""Runs of `ludic train` whose numbers are kept, so that a benchmark that is cut off goes on."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def numbers_of_run(
    words: Sequence[str], out: Path, read: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The numbers that `read` finds in the run's folder, and its CPU-seconds as "cpu_s".

    words: of the command, after `ludic`. out: folder of the run; its output is kept in OUT.log and
    its numbers in OUT.json. A run whose numbers are there is not made again.
    Raises RuntimeError where the command fails.
    """
    kept, log = out.with_name(f"{out.name}.json"), out.with_name(f"{out.name}.log")
    if kept.exists():
        numbers: dict[str, Any] = json.loads(kept.read_text())
        return numbers
    print("ludic", shlex.join(words), flush=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("w") as output:
        program = subprocess.Popen(
            [sys.executable, "-m", "ludic_gym", *words], stdout=output, stderr=output, env=env
        )
        _, status, used = os.wait4(program.pid, 0)
    if status:
        raise RuntimeError(f"{out.name} failed: see {log}")
    numbers = {**read(), "cpu_s": used.ru_utime + used.ru_stime}
    kept.write_text(json.dumps(numbers))
    return numbers
