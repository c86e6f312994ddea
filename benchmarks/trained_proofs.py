"""Held-out success of tiny models that `ludic train ID` makes from nothing, for the ids' pages.

    python benchmarks/trained_proofs.py [--only Maze Arithmetic] [--seeds 0] [--out runs/proofs]

Each run is the command that is printed, in a process of one thread. Tasks of an evaluation are of
the test split, or of seeds that no training uses. Runs of --out whose numbers are there already are
not made again. The figures go to benchmarks/results/trained.json, and a picture for each
environment to docs/img/trained; the environment's page in the documentation has both.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import pyplot

ROOT = Path(__file__).parents[1]
RESULTS, PICTURES = ROOT / "benchmarks" / "results" / "trained.json", ROOT / "docs/img/trained"
SPLITS = "--env-kwargs split=train --eval-kwargs split=test"
MEASURE = "--eval-episodes 200 --final-episodes 400"
EVALUATIONS = 8


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A run for the page of an environment.

    words: of the command, after `ludic train`. label: of its line in the picture.
    seeds: that are made unless others are named.
    """

    words: str
    label: str = "success"
    seeds: Sequence[int] = (0,)

    @property
    def env_id(self) -> str:
        """Id of the environment."""
        return self.words.split()[0]


# An environment without splits has other seeds in its evaluations.
PROOFS = {
    "Arithmetic": Proof(words=f"ludic/Arithmetic-v0 {SPLITS} --sft-updates 500 --updates 80"),
    "Countdown": Proof(
        words="ludic/Countdown-v0 --env-kwargs split=train numbers=2 "
        "--eval-kwargs split=test --sft-updates 300 --updates 80",
        label="2 numbers; one problem in five held out",
    ),
    "KnightsAndKnaves": Proof(
        words="ludic/KnightsAndKnaves-v0 --env-kwargs split=train people=3 "
        "--eval-kwargs split=test --sft-updates 300 --updates 120",
        label="3 people; one puzzle in five held out",
    ),
    "TicTacToe": Proof(
        words="ludic/TicTacToe-v0 --env-kwargs opponent=random --demonstrator random "
        "--sft-updates 100 --updates 60"
    ),
    "KuhnPoker": Proof(
        words="ludic/KuhnPoker-v0 --demonstrator random --sft-updates 60 --updates 60"
    ),
    "GuessTheNumber": Proof(
        words="ludic/GuessTheNumber-v0 --env-kwargs split=train high=20 "
        "--eval-kwargs split=test --sft-updates 60 --updates 20",
        label="numbers up to 20; 6 and 12 held out",
    ),
}


def command(name: str, seed: int, out: Path) -> list[str]:
    """The words of a run after `ludic`."""
    words = shlex.split(f"train {PROOFS[name].words} {MEASURE}")
    numbers = (int(words[words.index(f"--{stage}") + 1]) for stage in ("sft-updates", "updates"))
    every = max(1, sum(numbers) // EVALUATIONS)
    return [*words, "--eval-every", str(every), "--seed", str(seed), "--out", str(out)]


def run(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Success at each evaluation of a run, and its CPU-seconds, from NAME-SEED.json if it is there.

    Raises RuntimeError where the command fails; NAME-SEED.log has its output.
    """
    out = folder / f"{name}-{seed}"
    words, kept, log = command(name, seed, out), Path(f"{out}.json"), Path(f"{out}.log")
    if not kept.exists():
        print("ludic", shlex.join(words), flush=True)
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        with log.open("w") as output:
            program = subprocess.Popen(
                [sys.executable, "-m", "ludic_gym", *words], stdout=output, stderr=output, env=env
            )
            _, status, used = os.wait4(program.pid, 0)
        if status:
            raise RuntimeError(f"{out.name} failed: see {log}")
        numbers = {"curve": curve(out), "cpu_s": used.ru_utime + used.ru_stime}
        kept.write_text(json.dumps(numbers))
    found = json.loads(kept.read_text())
    return {
        "name": name,
        "id": PROOFS[name].env_id,
        "label": PROOFS[name].label,
        "seed": seed,
        # As a reader would type it: the folder is the reader's own.
        "command": shlex.join(["ludic", *words[:-2]]),
        "imitated": int(words[words.index("--sft-updates") + 1]),
        "curve": found["curve"],
        "cpu_s": round(found["cpu_s"]),
    }


def curve(out: Path) -> list[list[float]]:
    """Updates, success, and the ends of its 95 % interval, of each evaluation of a run."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    names = [f"test/success{end}" for end in ("", "_low", "_high")]
    found = [
        [line["update"], *(line[f"eval/{name}"] for name in names)]
        for line in lines
        if "eval/test/success" in line
    ]
    last = json.loads((out / "results.json").read_text())
    # The last evaluation again, of more episodes.
    found[-1][1:] = [last[name] for name in names]
    return [[round(number, 4) for number in point] for point in found]


def drawn(found: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the runs of one environment: success over updates, with its interval."""
    figure, axes = pyplot.subplots(figsize=(4.8, 2.8))
    colours = {label: f"C{i}" for i, label in enumerate(dict.fromkeys(r["label"] for r in found))}
    for each in found:
        updates, success, low, high = zip(*each["curve"], strict=True)
        label = each["label"] if each["seed"] == 0 else None
        axes.plot(updates, success, color=colours[each["label"]], label=label)
        axes.fill_between(updates, low, high, color=colours[each["label"]], alpha=0.15)
    axes.axvline(found[0]["imitated"], color="grey", linestyle=":", linewidth=1)
    axes.set(xlabel="update (imitation ends at the dotted line)", ylabel="held-out success")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")
    figure.tight_layout()
    # Without a date: equal figures are an equal file.
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    pyplot.rcParams["svg.hashsalt"] = "ludic"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PROOFS, default=list(PROOFS))
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/proofs"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    made = [
        run(name, seed, args.out) for name in args.only for seed in args.seeds or PROOFS[name].seeds
    ]
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    others = PROOFS.keys() - {each["name"] for each in made}
    found = [each for each in before if each["name"] in others] + made
    found.sort(key=lambda each: (list(PROOFS).index(each["name"]), each["seed"]))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for env_id in {each["id"] for each in found}:
        name = env_id.removeprefix("ludic/").removesuffix("-v0")
        drawn([each for each in found if each["id"] == env_id], PICTURES / f"{name}.svg")


if __name__ == "__main__":
    main()
