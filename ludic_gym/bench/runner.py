"""Tasks of a benchmark, and their play with a policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from ludic_gym.bench.result import BenchResult, Price, Tally, score
from ludic_gym.errors import ConfigError
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.rollout.tasks import grouped, rows_of
from ludic_gym.sampling import check_sampling
from ludic_gym.types import Env, Episode, MakePolicy, Policy, Sampling, Task

PROCEDURAL_EPISODES = 100
# Most environments have a lower limit of their own.
MAX_TURNS = 1000


async def run_bench(
    tasks: Iterable[Task],
    make_policy: MakePolicy,
    *,
    concurrency: int = 64,
    timeout_s: float | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    on_time: Callable[[Episode, float], None] | None = None,
    skip: Container[int] = (),
    first: Collection[int] = (),
    tally: Tally | None = None,
    price: Price | None = None,
    keep: bool = True,
) -> BenchResult:
    """Play every task once; the result over all episodes.

    After 20 episodes in a row that end in the same ClientError, or one by a quota that is used up,
    no more are played: the result has those before, and the error in `stopped`.

    make_policy: makes the policy of an episode; usable by all episodes at the same time.
    concurrency: episodes in flight.
    timeout_s: seconds after which an episode fails; None for no limit.
    on_episode: called with every episode as it ends, failed ones included, in order of completion.
    on_time: called with every episode and its duration in seconds.
    skip: indices of tasks that were played before. first: of tasks that come before the others.
    tally: receives the scores; it may hold earlier ones, and can be read during the run.
    price: as of `score`.
    keep: hold the episodes in the result, which takes memory for each.

    >>> import asyncio
    >>> from ludic_gym import OraclePolicy, bench_tasks
    >>> tasks = bench_tasks("ludic/Arithmetic-v0", episodes=20)
    >>> result = asyncio.run(run_bench(tasks, OraclePolicy))
    >>> result.success_rate, result.outcomes
    (1.0, {'success': 20})
    """
    tally = Tally() if tally is None else tally
    # By position in the stream, which differs from the index where tasks are skipped.
    indices: list[int] = []
    starts: dict[int, float] = {}
    played: list[Episode] = []

    def timed(index: int, env: Env) -> Policy:
        # An episode begins when its policy is built.
        starts[index] = time.perf_counter()
        return make_policy(env)

    def wanted() -> Iterator[tuple[Task, MakePolicy]]:
        numbered: Iterable[tuple[int, Task]] = enumerate(tasks)
        if first:
            numbered = sorted(numbered, key=lambda pair: pair[0] not in first)
        for index, task in numbered:
            if index not in skip:
                indices.append(index)
                yield task, partial(timed, index)

    stream = run_episodes(wanted(), make_policy, concurrency=concurrency, timeout_s=timeout_s)
    # If `on_episode` raises, the stream is closed at once, with all episodes in flight.
    async with aclosing(stream) as episodes:
        async for ended in episodes:
            index = indices[ended.index]
            episode = ended if index == ended.index else replace(ended, index=index)
            if keep:
                played.append(episode)
            # Popped, so that it holds running episodes only; none if the env could not be made.
            started = starts.pop(episode.index, None)
            if on_time is not None and started is not None:
                on_time(episode, time.perf_counter() - started)
            tally.add(score(episode, price))
            if on_episode is not None:
                on_episode(episode)
            if tally.stopped:
                break
    played.sort(key=lambda episode: episode.index)
    return replace(tally.result(), played=tuple(played))


def bench_tasks(
    env_id: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    episodes: int | None = None,
    seed: int = 0,
    sampling: Sampling | None = None,
    max_turns: int = MAX_TURNS,
    attempts: int | None = None,
    samples: int = 1,
) -> tuple[Task, ...]:
    """Tasks that are the same on every call; task i has env seed and sampling seed `seed + i`.

    max_turns: turns after which an episode is truncated.
    attempts: replies without an action after which an episode fails; None: 1 in a single-turn
        environment, else no limit.
    samples: how often each task is played; its samples follow each other and share its env seed.
        The first has the task's sampling seed, the others have seeds that are derived from it.

    An env with rows plays row i modulo their number, by default each once; any other env plays
    100 episodes by default.
    Raises ConfigError if there is nothing to play, or for a sampling that cannot work.

    >>> [task.seed for task in bench_tasks("ludic/Arithmetic-v0", episodes=3, seed=7)]
    [7, 8, 9]
    """
    # Copies, because the tasks outlive the call and the caller may change its dict.
    kwargs, sampling = dict(kwargs or {}), sampling or Sampling()
    check_sampling(sampling)
    rows = rows_of(env_id, kwargs)
    count = episodes if episodes is not None else rows or PROCEDURAL_EPISODES
    for name, value, least in (
        ("episodes", count, 1),
        ("seed", seed, 0),
        ("max_turns", max_turns, 1),
        ("attempts", 1 if attempts is None else attempts, 1),
        ("samples", samples, 1),
    ):
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    tasks = (
        Task(
            env_id=env_id,
            kwargs=kwargs,
            seed=seed + i,
            # Rows are chosen by number, not drawn, so that each is played equally often.
            options=None if rows is None else {"row": i % rows},
            sampling=replace(sampling, seed=seed + i),
            max_turns=max_turns,
            attempts=attempts,
        )
        for i in range(count)
    )
    if samples == 1:
        return tuple(tasks)
    return tuple(
        # The first as without samples, so that samples can be added to a run that has one of each.
        task if index % samples else replace(task, sampling=replace(task.sampling, seed=task.seed))
        for index, task in enumerate(grouped(tasks, samples))
    )
