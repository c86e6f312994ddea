"""Nim against perfect play, learned with and without a curriculum of larger and larger piles.

    python benchmarks/curricula.py [--seeds 0 1 2] [--out runs/curricula]

Both ways have equal numbers of updates, groups and episodes, and imitate random legal moves first,
so that they begin with the form of a move and nothing else. Success is against perfect play, with
piles of up to 7 stones. Runs of --out whose numbers are there already are not made again. The
figures go to benchmarks/results/curricula.json, for the table in docs/guides/training.md.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from harness.train_runs import numbers_of_run

RESULTS = Path(__file__).parent / "results" / "curricula.json"
CURRICULUM = """\
envs = ["ludic/Nim-v0"]

[curriculum]
raise_at = 0.5
window = 32
easier = 0.2
levels = { "ludic/Nim-v0" = [{ largest = 2 }, { largest = 3 }, { largest = 5 }, { largest = 7 }] }
"""
TRAIN = (
    "--demonstrator random --sft-updates 100 --updates 160 --eval-episodes 100 "
    "--final-episodes 400 --eval-every 130"
)
WAYS = ("with", "without")


def words(way: str, seed: int, out: Path) -> list[str]:
    """The words of a run after `ludic`."""
    own = ["ludic/Nim-v0", "--env-kwargs", "opponent=perfect", "largest=7"]
    if way == "with":
        config = out.with_name("curriculum.toml")
        config.write_text(CURRICULUM)
        own = ["--config", str(config), "--env-kwargs", "opponent=perfect"]
    return ["train", *own, *shlex.split(TRAIN), "--seed", str(seed), "--out", str(out)]


def numbers(out: Path) -> dict[str, Any]:
    """The last evaluation of a run, and the first update of each level of its curriculum."""
    last = json.loads((out / "results.json").read_text())
    ends = [round(last[f"test/success{end}"], 4) for end in ("", "_low", "_high")]
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    begins: dict[int, int] = {}
    for line in lines:
        if "level" in line:
            begins.setdefault(int(line["level"]), line["update"])
    return {"success": ends, "levels_from": list(begins.values())}


def run(way: str, seed: int, folder: Path) -> dict[str, Any]:
    """The numbers of a run."""
    out = folder / f"{way}-{seed}"
    found = numbers_of_run(words(way, seed, out), out, lambda: numbers(out))
    return {"way": way, "seed": seed, **found, "cpu_s": round(found["cpu_s"])}


def rows(found: list[dict[str, Any]]) -> list[str]:
    """Lines of the table in the guide, one per seed: success with and without, and CPU-seconds.

    >>> run = {"seed": 0, "success": [0.22, 0.18, 0.263], "cpu_s": 77}
    >>> rows([{**run, "way": "with"}, {**run, "way": "without", "cpu_s": 94}])
    ['| 0 | 22.0 % (18 to 26) | 22.0 % (18 to 26) | 77 | 94 |']
    """
    by_seed: dict[int, dict[str, dict[str, Any]]] = {}
    for each in found:
        by_seed.setdefault(each["seed"], {})[each["way"]] = each
    lines = []
    for seed, runs in by_seed.items():
        shares = [[100 * x for x in runs[way]["success"]] for way in WAYS]
        cells = [f"{rate:.1f} % ({low:.0f} to {high:.0f})" for rate, low, high in shares]
        spent = [str(runs[way]["cpu_s"]) for way in WAYS]
        lines.append(f"| {' | '.join([str(seed), *cells, *spent])} |")
    return lines


def main() -> None:
    """Make the runs, and write their figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--out", type=Path, default=Path("runs/curricula"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found = [run(way, seed, args.out) for way in args.ways for seed in args.seeds]
    if set(args.ways) == set(WAYS):
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        print("\n".join(rows(found)))


if __name__ == "__main__":
    main()
