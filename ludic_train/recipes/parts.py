"""Playing, as recipes need it: all of it, in order, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ludic_gym.bench.runner import run_bench
from ludic_gym.errors import EpisodeError
from ludic_gym.rollout import run_episodes
from ludic_gym.types import MakePolicy, Rollout, Task

CONCURRENCY = 256


async def play(tasks: Iterable[Task], make_policy: MakePolicy) -> list[Rollout]:
    """A rollout per task, in the order of the tasks. Raises EpisodeError if one fails."""
    episodes = [e async for e in run_episodes(tasks, make_policy, concurrency=CONCURRENCY)]
    for episode in episodes:
        if episode.error is not None:
            raise EpisodeError(f"{episode.task.env_id}, task {episode.index}: {episode.error}")
    episodes.sort(key=lambda episode: episode.index)
    return [rollout for episode in episodes for rollout in episode.rollouts]


async def outcome_shares(tasks: Sequence[Task], make_policy: MakePolicy) -> dict[str, float]:
    """The share of episodes per outcome, and "success", the share that the env calls one.

    Raises EpisodeError if an episode fails.
    """
    result = await run_bench(tasks, make_policy, concurrency=CONCURRENCY)
    if result.errors:
        raise EpisodeError(f"{len(result.errors)} episodes failed; the first: {result.errors[0]}")
    shares = {name: times / result.episodes for name, times in result.outcomes.items()}
    return {**shares, "success": result.success_rate}
