"""Does a pipeline learn like one process? Tic-Tac-Toe from nothing, each way, one after the other.

    python benchmarks/pipeline_learning.py [--seeds 0 1 2] [--updates 1000] [--max-lags 3 7]

One process is `ludic train tic-tac-toe`. A pipeline is `ludic launch` with Redis, a served sampler,
three actors and the trainer, once for each `max_lag`: with 4 minibatches, 3 waits for each batch to
be trained on before the next is played, 7 plays one while another is trained on. The clock runs
from the start of the program to its end, set-up and evaluations included. On two cores the trainer
has one of them, and all others share the second.
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
    """What became of a run. lag: mean over batches; most: of any group."""

    clock_s: float
    not_lost: float
    won: float
    halfway: float
    lag: float
    most: float


def ran(words: Sequence[str], out: Path) -> Ran:
    """The run that these words of `ludic` make in the folder `out`."""
    started = time.perf_counter()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*LUDIC, *words], env=env, check=True, stdout=subprocess.DEVNULL)
    clock_s = time.perf_counter() - started
    results = json.loads((out / "results.json").read_text())
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    measured = [r for r in records if "eval/perfect/win" in r]
    batches = [r for r in records if "lag/max" in r]
    return Ran(
        clock_s=clock_s,
        not_lost=results["perfect/win"] + results["perfect/draw"],
        won=results["random/win"],
        halfway=not_lost_then(measured, measured[-1]["update"] // 2),
        lag=sum(r["lag"] for r in batches) / max(1, len(batches)),
        most=max((r["lag/max"] for r in batches), default=0.0),
    )


def not_lost_then(measured: Sequence[dict[str, float]], update: float) -> float:
    """The share of games that was not lost at the last evaluation up to `update`."""
    last = [r for r in measured if r["update"] <= update][-1]
    return last["eval/perfect/win"] + last["eval/perfect/draw"]


def main() -> None:
    """Print a row per run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--max-lags", type=int, nargs="+", default=[3, 7])
    parser.add_argument("--actors", type=int, default=3)
    options = parser.parse_args()
    table = Table("way", "seed", "not lost", "halfway", "won", "lag, most", "clock", "ratio")
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            recipe = ["--seed", str(seed), "--updates", str(options.updates)]
            out = Path(folder) / f"alone-{seed}"
            alone = ran(["train", RECIPE, "--out", str(out), *recipe], out)
            add(table, "one process", seed, alone, alone)
            for lag in options.max_lags:
                out = Path(folder) / f"lag-{lag}-{seed}"
                words = ["launch", RECIPE, "--redis", "--actors", str(options.actors)]
                words += ["--out", str(out), "--", *recipe, "--max-lag", str(lag)]
                add(table, f"pipeline, max_lag {lag}", seed, ran(words, out), alone)
    Console().print(table)


def add(table: Table, way: str, seed: int, run: Ran, alone: Ran) -> None:
    """A row; the ratio is of the clock to that of one process."""
    shares = [f"{share:.1%}" for share in (run.not_lost, run.halfway, run.won)]
    lag = f"{run.lag:.1f}, {run.most:.0f}" if run.most else ""
    clock = [f"{run.clock_s:.0f} s", f"{run.clock_s / alone.clock_s:.2f}"]
    table.add_row(way, str(seed), *shares, lag, *clock)
    print(way, seed, *shares, lag, *clock, flush=True)


if __name__ == "__main__":
    main()
