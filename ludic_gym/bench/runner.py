"""Plays tasks with a policy and adds up how it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace

from ludic_gym.bench.result import BenchResult, score
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
    on_time: Callable[[int, float], None] | None = None,
    skip: Container[int] = (),
    tally: Tally | None = None,
) -> BenchResult:
    """Every task played once, in numbers.

    tasks: a task that comes with a MakePolicy is played by that one.
    concurrency: episodes in flight.
    timeout_s: seconds one episode may take; it fails after that. None: as long as it likes.
    on_episode: called with every episode as it ends, failed ones included, in order of completion.
    on_time: called with every episode's index and the seconds it took.
    skip: indices of tasks that are not played, because they were before.
    tally: what is counted in; it may hold earlier episodes, and be looked at meanwhile.
    """
    tally = Tally() if tally is None else tally
    indices: dict[int, int] = {}
    starts: dict[int, float] = {}

    def wanted() -> Iterator[tuple[Task, MakePolicy]]:
        position = 0
        for index, job in enumerate(tasks):
            if index not in skip:
                indices[position] = index
                position += 1
                task, make = job if isinstance(job, tuple) else (job, make_policy)
                yield task, _starting(make, index, starts)

    stream = run_episodes(wanted(), make_policy, concurrency=concurrency, timeout_s=timeout_s)
    # Closed at once if `on_episode` raises, so that no episode goes on unseen.
    async with aclosing(stream) as episodes:
        async for played in episodes:
            episode = replace(played, index=indices.pop(played.index))
            started = starts.pop(episode.index, None)
            if on_time is not None and started is not None:
                on_time(episode.index, time.perf_counter() - started)
            tally.add(score(episode))
            if on_episode is not None:
                on_episode(episode)
    return tally.result()


def _starting(make: MakePolicy, index: int, starts: dict[int, float]) -> MakePolicy:
    """Builds the policy as `make` does, and notes when: an episode begins with its policy."""

    def make_and_note(env: Env) -> Policy:
        starts[index] = time.perf_counter()
        return make(env)

    return make_and_note
