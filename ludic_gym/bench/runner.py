"""Plays tasks with a policy and adds up how it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import aclosing

from ludic_gym.bench.result import BenchResult, Score, score, summarise
from ludic_gym.rollout import run_episodes
from ludic_gym.types import Episode, MakePolicy, Task


async def run_bench(
    tasks: Iterable[Task],
    make_policy: MakePolicy,
    *,
    concurrency: int = 64,
    timeout_s: float | None = None,
    on_episode: Callable[[Episode], None] | None = None,
) -> BenchResult:
    """Every task played once, in numbers.

    concurrency: episodes in flight.
    timeout_s: seconds one episode may take; it fails after that. None: as long as it likes.
    on_episode: called with every episode as it ends, failed ones included, in order of completion.
    """
    scores: list[Score] = []
    stream = run_episodes(tasks, make_policy, concurrency=concurrency, timeout_s=timeout_s)
    # Closed at once if `on_episode` raises, so that no episode goes on unseen.
    async with aclosing(stream) as episodes:
        async for episode in episodes:
            scores.append(score(episode))
            if on_episode is not None:
                on_episode(episode)
    return summarise(scores)
