"""All parts of ScaleRL, trained through a queue, and a sigmoid of success against compute.

    python benchmarks/scalerl.py [--updates 400] [--actors 1] [--out runs/scalerl]

`ludic launch` starts Redis, actors that sample by themselves, and the trainer: CISPO, prompt mean,
advantages by the batch's std, no groups of equal rewards, no tasks with a pass rate of 0.9,
interrupted thoughts, float32 logits, rows up to 8 updates old (Khatri et al. 2025,
arXiv:2510.13786). `ludic-small` learns Countdown of three numbers on 2,000 tasks.

Held-out success R is fitted by the paper's curve, R0 + (A - R0) / (1 + (C_mid / C)^B). C are
operations: 6 per param and token that is trained on, 2 per param and token that is sampled. OUT
gets the run and curve.svg; a run that is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib import pyplot
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from safetensors import safe_open
from scipy.optimize import curve_fit

import ludic_gym as lg
from ludic_gym.envs.puzzles.countdown import CountdownEnv, grade_countdown

Floats = NDArray[np.float64]
# After an expression and its steps, an answer: as the model was taught to reply.
RUN = (
    "launch scalerl:bench/FewCountdowns-v0 --redis --servers 0 --actors {actors} --out {out}"
    " -- --model ludic-small --lora-rank 0 --lr 4e-4 --algo scalerl --updates {updates} --groups 16"
    " --max-tokens 64 --think-tokens 48 --think-closing ' <answer>' --eval-every {every}"
    " --eval-episodes 400 --final-episodes 400"
)
EVALUATIONS = 15
ROWS = 2_000


@cache
def rows() -> list[dict[str, str]]:
    """Questions of three numbers with their targets, equal in every process."""
    env = gym.make("ludic/Countdown-v0", numbers=3)
    found = []
    for seed in range(ROWS):
        question, _ = env.reset(seed=seed)
        numbers, target = (line.partition(": ")[2] for line in question.splitlines())
        found.append({"question": question, "answer": f"{numbers} = {target}"})
    env.close()
    return found


def make_env(**kwargs: object) -> gym.Env[str, str]:
    """The environment, with held-out rows for evaluations."""
    return lg.QAEnv(rows(), prompt=CountdownEnv.prompt, grader=grade_countdown, **kwargs)


# Programs of the run import it from here.
gym.register(id="bench/FewCountdowns-v0", entry_point=make_env)


def run(out: Path, updates: int, actors: int) -> None:
    """Train into the folder `out`."""
    every = max(updates // EVALUATIONS, 1)
    words = shlex.split(RUN.format(out=out, updates=updates, actors=actors, every=every))
    print("ludic", shlex.join(words), flush=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-m", "ludic_gym", *words], env=env, check=True)


def curve_of(lines: Sequence[dict[str, Any]], params: int) -> tuple[Floats, Floats]:
    """Operations until each evaluation, and its success."""
    compute, found = 0.0, []
    for line in lines:
        spent = 6 * line.get("tokens/trained", 0) + 2 * line.get("tokens/sampled", 0)
        compute += params * spent
        if "eval/test/success" in line:
            found.append((compute, line["eval/test/success"]))
    return np.array(found).T[0], np.array(found).T[1]


def sigmoid(compute: Floats, top: float, middle: float, steepness: float, start: float) -> Floats:
    """Success after so much compute, in the paper's form; `start` without any."""
    with np.errstate(divide="ignore"):
        return start + (top - start) / (1 + (middle / compute) ** steepness)


def fitted(compute: Floats, success: Floats) -> tuple[float, float, float, float]:
    """Asymptote, compute of half the gain, steepness, and the root mean square of what is left."""
    start = success[0]
    guess = success.max(), np.median(compute[1:]), 1.0
    bounds = ((start, compute[1] / 10, 0.1), (1.0, compute[-1] * 10, 10.0))
    (top, middle, steepness), _ = curve_fit(
        lambda c, a, m, b: sigmoid(c, a, m, b, start),
        compute[1:],
        success[1:],
        p0=guess,
        bounds=bounds,
    )
    left = success[1:] - sigmoid(compute[1:], top, middle, steepness, start)
    return top, middle, steepness, float(np.sqrt(np.mean(left**2)))


def drawn(compute: Floats, success: Floats, fit: Sequence[float], path: Path) -> None:
    """Draw the evaluations and the fitted curve."""
    figure, axes = pyplot.subplots(figsize=(4.8, 3.0))
    grid = np.geomspace(compute[1] / 3, compute[-1] * 1.5, 200)
    axes.plot(grid, sigmoid(grid, *fit[:3], success[0]), color="C1", label="fitted sigmoid")
    axes.plot(compute[1:], success[1:], "o", markersize=4, label="held-out success")
    axes.axhline(success[0], color="grey", linestyle=":", label="before training")
    axes.set(xscale="log", xlabel="operations", ylabel="success", ylim=(0, 1.3 * success.max()))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path)


def parts_of(out: Path, lines: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Measured effect of each part of the recipe, by name."""
    updates = [line for line in lines if "loss" in line]
    states = sorted(out.glob("checkpoints/*/state.json"))
    history = json.loads(states[-1].read_text())["state"]["trainer"]["source"]["history"]

    def mean(name: str) -> float:
        return float(np.mean([line[name] for line in updates if name in line]))

    retired, ratios = len(history["retired"]), [line["mismatch/ratio_max"] for line in updates]
    turns = sum(line["episodes"] * line["turns"] for line in updates)
    calls = sum(line["tokens/sampled"] / line["tokens/completion"] for line in updates)
    return {
        "rollouts kept, of groups that differ": f"{mean('rollouts/kept'):.1%}",
        "tasks retired at a pass rate of 0.9": f"{retired} of {len(history['plays'])}",
        "replies whose thought was interrupted": f"{calls / turns - 1:.1%}",
        "lag of tokens in updates, mean and largest": f"{mean('lag'):.1f}, "
        f"{max(line['lag_max'] for line in updates):.0f}",
        "KL of sampler and trainer at lag 0": f"{mean('mismatch/kl_at_lag_0'):.1e}",
        "largest ratio of trainer to sampler": f"{max(ratios):.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--actors", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/scalerl"))
    options = parser.parse_args()
    if not (options.out / "results.json").exists():
        run(options.out, options.updates, options.actors)
    lines = [json.loads(line) for line in (options.out / "metrics.jsonl").read_text().splitlines()]
    with safe_open(options.out / "model" / "model.safetensors", "np") as file:
        params = sum(file.get_tensor(name).size for name in file.keys())  # noqa: SIM118 - no dict
    compute, success = curve_of(lines, params)
    fit = fitted(compute, success)
    drawn(compute, success, fit, options.out / "curve.svg")
    table = Table("part", "value")
    for name, value in parts_of(options.out, lines).items():
        table.add_row(name, value)
    table.add_section()
    for name, value in {
        "success before training": f"{success[0]:.1%}",
        "success at the end": f"{success[-1]:.1%}",
        "asymptote A of the fit": f"{fit[0]:.1%}",
        "operations C_mid of half the gain": f"{fit[1]:.2e}, of {compute[-1]:.2e}",
        "steepness B": f"{fit[2]:.2f}",
        "root mean square of the residuals": f"{fit[3]:.1%}",
    }.items():
        table.add_row(name, value)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
