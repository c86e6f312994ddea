"""Held-out success of `ludic-small` before, during and after `ludic train`.

    python benchmarks/small_model_gains.py [--envs Countdown] [--seeds 0 1 2] [--jobs 2]

Each run is the command that is printed, in a process of one thread. Tasks of an evaluation have
seeds that no training uses. OUT gets a folder per run, gains.json and gains.svg; runs whose
numbers are there already are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

RUNS = {
    "Countdown": "ludic/Countdown-v0 --env-kwargs numbers=3 --updates 200 --max-tokens 64",
    "Tic-Tac-Toe": "ludic/TicTacToe-v0 --updates 60 --max-tokens 16",
    "Rock Paper Scissors": "ludic/RockPaperScissors-v0 --updates 10 --max-tokens 16",
}
COMMON = "--model ludic-small --lora-rank 0 --lr 4e-4 --groups 32"
MEASURE = "--eval-episodes 200 --final-episodes 400"
EVALUATIONS = 5


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


def command(name: str, seed: int, out: Path) -> list[str]:
    """The words of a run after `ludic`."""
    words = shlex.split(f"train {RUNS[name]} {COMMON} {MEASURE}")
    every = int(words[words.index("--updates") + 1]) // EVALUATIONS
    return [*words, "--seed", str(seed), "--eval-every", str(every), "--out", str(out)]


def run(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Success at each evaluation of a run, and its CPU-seconds."""
    out = folder / f"{name.replace(' ', '-')}-{seed}"

    def read() -> dict[str, Any]:
        lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        found = json.loads((out / "results.json").read_text())
        (success,) = (key for key in found if key.endswith("/success"))
        key = f"eval/{success}"
        curve = {line["update"]: line[key] for line in lines if key in line}
        after = [found[f"{success}{end}"] for end in ("", "_low", "_high")]
        return {"env": name, "seed": seed, "curve": curve, "after": after}

    return numbers_of_run(command(name, seed, out), out, read)


def drawn(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw held-out success over updates, a panel for each environment and a line for each seed."""
    names = list(dict.fromkeys(run["env"] for run in found))
    figure, _ = pyplot.subplots(1, len(names), figsize=(2.4 * len(names), 2.4), sharey=True)
    for name, axes in zip(names, figure.axes, strict=True):
        for each in (run for run in found if run["env"] == name):
            curve = {int(update): share for update, share in each["curve"].items()}
            axes.plot(list(curve), list(curve.values()), label=f"seed {each['seed']}")
        axes.set(title=name, xlabel="update", ylim=(0, 1))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("held-out success")
    figure.axes[0].legend(fontsize="x-small")
    figure.tight_layout()
    figure.savefig(path)


def table_of(found: Sequence[Mapping[str, Any]]) -> Table:
    """A line per run."""
    table = Table("env", "seed", "before", "after", "95 % interval", "CPU-seconds")
    for each in found:
        after, low, high = each["after"]
        before = f"{next(iter(each['curve'].values())):.1%}"
        between = f"{low:.1%} to {high:.1%}"
        table.add_row(
            each["env"], str(each["seed"]), before, f"{after:.1%}", between, f"{each['cpu_s']:.0f}"
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/gains"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        pairs = [(name, seed) for seed in args.seeds for name in args.envs]
        found = list(pool.map(lambda pair: run(pair[0], pair[1], args.out), pairs))
    found.sort(key=lambda each: list(RUNS).index(each["env"]))
    (args.out / "gains.json").write_text(json.dumps(found, indent=1))
    drawn(found, args.out / "gains.svg")
    Console(width=100).print(table_of(found))


if __name__ == "__main__":
    main()
