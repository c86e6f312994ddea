"""Scaling curves, kept as results/curves.json; docs/speed_page.py draws them.

    python benchmarks/curves.py

Steps by the number of environments of a vector (1 to 4,096), rollouts by the number in flight,
admissions of the queue by actors (1 to 64), rows by their tokens (16 to 32k), and updates by rows
(1 to 512) and by vocabulary (1k to 152k).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import harness.env_loads as envs
from harness.rates import MakeWork, budget, rates, save
from harness.rollout_loads import rollouts
from harness.row_loads import copies, rows
from harness.update_loads import updates, updates_by_hand
from pipeline import admission_us
from redis.asyncio import Redis
from redis_server import redis_server

from ludic_gym.vector.ragged import make_ragged

SIZES: Mapping[str, Sequence[int]] = {
    "envs": (1, 8, 64, 512, 4096),
    "rollouts": (1, 16, 64, 256, 1024, 4096),
    "actors": (1, 4, 16, 64),
    "rows": (16, 128, 1024, 8192, 32768),
    "batch": (1, 8, 64, 512),
    "vocabulary": (1_000, 8_000, 32_000, 152_000),
}
# Title, and the axis of the sizes.
TITLES = {
    "envs": ("Steps of Tic-Tac-Toe per CPU-second", "environments of a vector"),
    "rollouts": ("GSM8K rollouts per CPU-second, instant client", "episodes in flight"),
    "actors": ("Admissions per CPU-second of the queue's server", "actors"),
    "rows": ("Rows per CPU-second, one turn", "tokens of a row"),
    "batch": ("Tokens per CPU-second of an update, width 64", "rows of 22 tokens"),
    "vocabulary": ("Tokens per CPU-second of an update, width 64", "vocabulary"),
}
# Rates by series; each has one per place on the axis.
Curves = Mapping[str, Sequence[float]]


def curves(series: Mapping[str, Sequence[MakeWork]], *, seconds: float, rounds: int) -> Curves:
    """The median rate of each work; those of one place are measured side by side."""
    found: dict[str, list[float]] = {name: [] for name in series}
    for makes in zip(*series.values(), strict=True):
        works = {name: make() for name, make in zip(series, makes, strict=True)}
        for name, rate in rates(works, seconds=seconds, rounds=rounds).items():
            found[name].append(rate.median)
    return found


def works_of_envs() -> Mapping[str, Sequence[MakeWork]]:
    """Vector environments by size."""
    return {
        "RaggedVectorEnv": [
            lambda n=n: envs.vector_steps(make_ragged(envs.GAME, n)) for n in SIZES["envs"]
        ],
        "SyncVectorEnv": [lambda n=n: envs.vector_steps(envs.sync_games(n)) for n in SIZES["envs"]],
    }


def works_of_rows() -> Mapping[str, Sequence[MakeWork]]:
    """Rows of one turn by length."""
    return {
        "rows_from": [partial(rows, 1, tokens=n) for n in SIZES["rows"]],
        "arrays by numpy": [partial(copies, tokens=n) for n in SIZES["rows"]],
    }


def admissions() -> list[float]:
    """Admissions per CPU-second of the queue's server, by actors."""

    async def measured(url: str) -> list[float]:
        async with Redis.from_url(url) as redis:
            return [1e6 / await admission_us(redis, url, n) for n in SIZES["actors"]]

    with redis_server() as url:
        return asyncio.run(measured(url))


def main() -> None:
    """Measure, and write results/curves.json."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.1, help="CPU-seconds of a round")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    measured = partial(curves, seconds=args.seconds, rounds=args.rounds)
    rollouts_of = partial(rollouts, envs.QUESTIONS, amount=budget(8192, 512))
    found: dict[str, Curves] = {
        "envs": measured(works_of_envs()),
        "rollouts": measured(
            {"run_episodes": [partial(rollouts_of, concurrency=n) for n in SIZES["rollouts"]]}
        ),
        "actors": {"admissions": admissions()},
        "rows": measured(works_of_rows()),
        "batch": measured(
            {
                "Trainer.update": [partial(updates, rows=n) for n in SIZES["batch"]],
                "loop by hand": [partial(updates_by_hand, rows=n) for n in SIZES["batch"]],
            }
        ),
        "vocabulary": measured(
            {
                "Trainer.update": [partial(updates, vocab=n) for n in SIZES["vocabulary"]],
                "loop by hand": [partial(updates_by_hand, vocab=n) for n in SIZES["vocabulary"]],
            }
        ),
    }
    kept = {}
    for name, (title, axis) in TITLES.items():
        kept[name] = {"title": title, "axis": axis, "places": SIZES[name], "rates": found[name]}
        print(title, *zip(SIZES[name], *found[name].values(), strict=True), sep="\n  ", flush=True)
    save("curves", kept)


if __name__ == "__main__":
    main()
