"""Skill of a small chat model: replies in form and successes, in the environments of its lessons.

    python benchmarks/small_model.py [--model ludic-small] [--episodes 200]

A reply is in form if it ends by itself and, in a question, has its answer in tags; in a game, if it
is a legal action. Tasks have seeds that no training uses. "greedy" is at temperature 0, "sampled"
at temperature 1.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from ludic_gym.bench.runner import run_bench
from ludic_gym.types import Episode, MakePolicy, Sampling, Step, Task
from ludic_train.engine.client import policy_from_run
from ludic_train.runs.tasks import EVALUATIONS_FROM
from ludic_train.small_model.lessons import LESSONS

MAX_TOKENS = 96


def is_in_form(step: Step) -> bool:
    """True for a reply that ends by itself and is what the env's prompt asks for."""
    info = step.info
    ended = all(call.finish_reason == "stop" for call in step.decision.completions)
    legal = not info.get("illegal") and info.get("outcome") != "illegal"
    return ended and legal and info.get("rule", "tag") == "tag"


async def measure(
    make_policy: MakePolicy, env_id: str, kwargs: Mapping[str, Any], episodes: int, warmth: float
) -> tuple[float, float]:
    """Share of replies in form, and of episodes that succeed."""
    replies: Counter[bool] = Counter()

    def count(episode: Episode) -> None:
        replies.update(is_in_form(step) for r in episode.rollouts for step in r.steps)

    sampling = Sampling(temperature=warmth, max_tokens=MAX_TOKENS)
    tasks = [
        Task(env_id=env_id, kwargs=kwargs, seed=seed, sampling=sampling)
        for seed in range(EVALUATIONS_FROM, EVALUATIONS_FROM + episodes)
    ]
    result = await run_bench(tasks, make_policy, concurrency=128, on_episode=count)
    if result.errors:
        raise RuntimeError(f"{env_id}: {len(result.errors)} failed, the first: {result.errors[0]}")
    return replies[True] / replies.total(), result.success_rate


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="ludic-small")
    parser.add_argument("--episodes", type=int, default=200)
    args = parser.parse_args()
    make_policy = policy_from_run(args.model)
    table = Table("env", "in form, greedy", "sampled", "success, greedy", "sampled")
    for lesson in LESSONS:
        cells = [
            await measure(make_policy, lesson.env_id, lesson.kwargs, args.episodes, warmth)
            for warmth in (0.0, 1.0)
        ]
        shares = [cell[kind] for kind in (0, 1) for cell in cells]
        kwargs = " ".join(f"{key}={value}" for key, value in lesson.kwargs.items())
        table.add_row(f"{lesson.env_id} {kwargs}", *(f"{share:.1%}" for share in shares))
    Console(width=110).print(table)


if __name__ == "__main__":
    asyncio.run(main())
