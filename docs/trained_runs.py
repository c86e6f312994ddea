"""Section of an environment's page about training in it, from the figures of a benchmark."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FIGURES = Path(__file__).parents[1] / "benchmarks" / "results" / "trained.json"


@cache
def _runs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return found


def training_section(env_id: str) -> str:
    """Commands, figures and picture of the runs of an environment; "" for one without runs."""
    runs = [run for run in _runs() if run["id"] == env_id]
    if not runs:
        return ""
    commands = "".join(f"{run['command']}\n" for run in runs if run["seed"] == runs[0]["seed"])
    rows = "".join(map(_row, runs))
    name = env_id.removeprefix("ludic/").removesuffix("-v0")
    return f"""\
## Training

A tiny model made from nothing on one CPU core, by `benchmarks/trained_proofs.py`: imitation of a
demonstrator, then learning from rewards. Success is on tasks of the test split, or of seeds that no
training uses where there are no splits, sampled at temperature 1, with a 95 % interval in the end.

```sh
{commands}```

| run | seed | at first | after imitation | in the end | CPU-seconds |
|---|---:|---:|---:|---:|---:|
{rows}
![Held-out success over updates](../../img/trained/{name}.svg)
"""


def _row(run: dict[str, Any]) -> str:
    imitated = [success for update, success, *_ in run["curve"] if update <= run["imitated"]]
    _, last, low, high = run["curve"][-1]
    shares = f"{run['curve'][0][1]:.3f} | {imitated[-1]:.3f} | {last:.3f} ({low:.2f} to {high:.2f})"
    return f"| {run['label']} | {run['seed']} | {shares} | {run['cpu_s']} |\n"
