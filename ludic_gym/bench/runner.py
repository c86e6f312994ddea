"""Runs of a benchmark: play tasks with a policy and add up the scores."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace

from ludic_gym.bench.result import BenchResult, Price, score
from ludic_gym.bench.tally import Tally
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import Env, Episode, MakePolicy, Policy, Task

Job = Task | tuple[Task, MakePolicy]


async def run_bench(
    tasks: Iterable[Job],
    make_policy: MakePolicy,
    *,
    concurrency: int = 64,
    timeout_s: float | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    on_time: Callable[[Episode, float], None] | None = None,
    skip: Container[int] = (),
    tally: Tally | None = None,
    price: Price | None = None,
) -> BenchResult:
    """Play every task once; the result over all episodes.

    After 20 episodes in a row that end in the same ClientError, no more are played: the result has
    those before, and the error in `stopped`.

    make_policy: makes the policy of an episode; usable by all episodes at the same time.
    tasks: a task that comes with a MakePolicy is played by that one.
    concurrency: episodes in flight.
    timeout_s: seconds after which an episode fails; None for no limit.
    on_episode: called with every episode as it ends, failed ones included, in order of completion.
    on_time: called with every episode and its duration in seconds.
    skip: indices of tasks that were played before.
    tally: receives the scores; it may hold earlier ones, and can be read during the run.
    price: as of `score`.

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

    def wanted() -> Iterator[tuple[Task, MakePolicy]]:
        for index, job in enumerate(tasks):
            if index not in skip:
                indices.append(index)
                task, make = job if isinstance(job, tuple) else (job, make_policy)
                yield task, _starting(make, index, starts)

    stream = run_episodes(wanted(), make_policy, concurrency=concurrency, timeout_s=timeout_s)
    # If `on_episode` raises, the stream is closed at once, with all episodes in flight.
    async with aclosing(stream) as episodes:
        async for played in episodes:
            index = indices[played.index]
            episode = played if index == played.index else replace(played, index=index)
            # Popped, so that it holds running episodes only; none if the env could not be made.
            started = starts.pop(episode.index, None)
            if on_time is not None and started is not None:
                on_time(episode, time.perf_counter() - started)
            tally.add(score(episode, price))
            if on_episode is not None:
                on_episode(episode)
            if tally.stopped:
                break
    return tally.result()


def _starting(make: MakePolicy, index: int, starts: dict[int, float]) -> MakePolicy:
    """A `make` that records the time: an episode begins when its policy is built."""

    def make_and_note(env: Env) -> Policy:
        starts[index] = time.perf_counter()
        return make(env)

    return make_and_note
