"""Does a pipeline learn like one process? Tic-Tac-Toe from nothing, each way, one after the other.

    python benchmarks/pipeline_learning.py [--seeds 0 1 2] [--updates 1000] [--ways served:3 own:7]

One process is `ludic train tic-tac-toe`. A pipeline is `ludic launch` with Redis, three actors and
the trainer. `served:3` has a sampler that serves the actors, and a `max_lag` of 3; in `own:7` every
actor samples by itself. With 4 minibatches, a `max_lag` of 3 waits for each batch to be trained on
before the next is played, 7 plays one while another is trained on. The clock runs from the start of
the program to its end, set-up and evaluations included. A model of 0.1M parameters samples faster
than HTTP can ask for it: what servers cost here, they do not cost a model that needs one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

LUDIC = [sys.executable, "-m", "ludic_gym"]
RECIPE = "tic-tac-toe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Result of a run. lag: the largest of any group."""

    clock_s: float
    not_lost: float
    won: float
    halfway: float
    lag: float


def ran(words: Sequence[str], out: Path) -> Ran:
    """The run that these words of `ludic` make in the folder `out`."""
    started = time.perf_counter()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*LUDIC, *words], env=env, check=True, stdout=subprocess.DEVNULL)
    clock_s = time.perf_counter() - started
    results = json.loads((out / "results.json").read_text())
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    measured = [r for r in records if "eval/perfect_first/win" in r]
    return Ran(
        clock_s=clock_s,
        not_lost=results["perfect_first/win"] + results["perfect_first/draw"],
        won=results["random_first/win"],
        halfway=not_lost_then(measured, measured[-1]["update"] // 2),
        lag=max((r["lag/max"] for r in records if "lag/max" in r), default=0.0),
    )


def not_lost_then(measured: Sequence[dict[str, float]], update: float) -> float:
    """The share of games that was not lost at the last evaluation up to `update`."""
    last = [r for r in measured if r["update"] <= update][-1]
    return last["eval/perfect_first/win"] + last["eval/perfect_first/draw"]


def main() -> None:
    """Print a row per run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--ways", nargs="+", default=["served:3", "served:7", "own:7"])
    parser.add_argument("--actors", type=int, default=3)
    options = parser.parse_args()
    table = Table("way", "seed", "not lost", "halfway", "won", "lag", "clock", "ratio")
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            recipe = ["--seed", str(seed), "--updates", str(options.updates)]
            out = Path(folder) / f"alone-{seed}"
            alone = ran(["train", RECIPE, "--out", str(out), *recipe], out)
            add(table, "one process", seed, alone, alone)
            for way in options.ways:
                sampler, _, lag = way.partition(":")
                out = Path(folder) / f"{sampler}-{lag}-{seed}"
                words = ["launch", RECIPE, "--redis", "--actors", str(options.actors)]
                words += ["--servers", str(int(sampler == "served")), "--out", str(out)]
                run = ran([*words, "--", *recipe, "--max-lag", lag], out)
                add(table, f"{sampler} servers, max_lag {lag}", seed, run, alone)
    Console().print(table)


def add(table: Table, way: str, seed: int, run: Ran, alone: Ran) -> None:
    """A row; the ratio is of the clock to that of one process."""
    shares = [f"{share:.1%}" for share in (run.not_lost, run.halfway, run.won)]
    lag = f"{run.lag:.0f}" if run.lag else ""
    clock = [f"{run.clock_s:.0f} s", f"{run.clock_s / alone.clock_s:.2f}"]
    table.add_row(way, str(seed), *shares, lag, *clock)
    print(way, seed, *shares, lag, *clock, flush=True)


if __name__ == "__main__":
    main()
