"""EpisodeStream: many episodes at once, in order of completion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ludic_gym.concurrency import cancelled
from ludic_gym.errors import ConfigError, EpisodeError
from ludic_gym.rollout.pool import EnvPool
from ludic_gym.rollout.threads import Closable, close
from ludic_gym.types import Episode, Rollout, Task

E = TypeVar("E", bound=Closable)
T = TypeVar("T")
# Plays the task in the env.
Play = Callable[[E, Task], Awaitable[tuple[Rollout, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Counts of a stream of episodes; the `finished` ones include the `failed` ones."""

    started: int
    finished: int
    failed: int


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Number of episodes at once, time limit of each, and a callback for progress.

    Raises ConfigError for a concurrency below 1 or a time limit that is not positive.
    """

    concurrency: int = 64
    timeout_s: float | None = None
    on_progress: OnProgress | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ConfigError(f"concurrency is at least 1, got {self.concurrency}")
        if self.timeout_s is not None and self.timeout_s <= 0:
            raise ConfigError(f"timeout_s is positive or None, got {self.timeout_s}")


class EpisodeStream(Generic[E]):
    """Workers that take one task after the other from a shared iterator."""

    # A worker per slot instead of an asyncio task per episode, whose start costs as much as a short
    # episode. The iterator is read without a lock: `next` does not await.

    def __init__(
        self,
        jobs: Iterable[tuple[Task, Play[E]]],
        envs: EnvPool[E],
        options: StreamOptions,
    ) -> None:
        self._jobs: Iterator[tuple[int, tuple[Task, Play[E]]]] = enumerate(jobs)
        self._envs = envs
        self._options = options
        self._started = self._finished = self._failed = 0
        # Episodes, and at a worker's end None, or the error from reading the tasks. The queue is
        # bounded: a slow consumer holds the workers back, so that finished episodes do not pile up.
        self._results: asyncio.Queue[Episode | Exception | None] = asyncio.Queue(
            options.concurrency
        )

    async def episodes(self) -> AsyncGenerator[Episode, None]:
        """All episodes; closing the generator cancels all workers and waits for them."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._options.concurrency)]
        try:
            working = len(workers)
            while working:
                result = await self._results.get()
                if isinstance(result, Exception):
                    raise result
                if result is None:
                    working -= 1
                else:
                    self._report(result)
                    yield result
        finally:
            # Also after an error of a worker or of the consumer: no episode may outlive the stream.
            await cancelled(workers)

    async def _work(self) -> None:
        end: Exception | None = None
        try:
            for index, (task, play) in self._jobs:
                self._started += 1
                await self._results.put(await self._episode(index, task, play))
        # `_episode` raises nothing: this is an error of the tasks' iterator. `episodes` raises it.
        except Exception as error:
            end = error
        await self._results.put(end)

    async def _episode(self, index: int, task: Task, play: Play[E]) -> Episode:
        env: E | None = None
        try:
            env = self._envs.lend(task)
            rollouts = await _in_time(play(env, task), self._options.timeout_s)
            self._envs.give_back(task, env)
        # Any error of the env, the policy or a client is the result of this episode only.
        except (Exception, asyncio.CancelledError) as error:
            # A failed env may be in any state: it does not go back to the pool.
            trouble = "" if env is None else _discarded(env)
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            text = f"{type(error).__name__}: {error}{trouble}"
            return Episode(index=index, task=task, error=text)
        return Episode(index=index, task=task, rollouts=rollouts)

    def _report(self, episode: Episode) -> None:
        self._finished += 1
        self._failed += episode.error is not None
        if self._options.on_progress is not None:
            self._options.on_progress(
                Progress(started=self._started, finished=self._finished, failed=self._failed)
            )


async def _in_time(awaitable: Awaitable[T], timeout_s: float | None) -> T:
    if timeout_s is None:
        return await awaitable
    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await awaitable
    except TimeoutError as error:
        # The env or a client may have a time limit of its own.
        if not limit.expired():
            raise
        raise EpisodeError(f"the episode took longer than timeout_s={timeout_s:g}") from error


def _is_cancelled() -> bool:
    """True if this worker is cancelled, False if a policy cancelled something it waited for."""
    worker = asyncio.current_task()
    return worker is not None and worker.cancelling() > 0


def _discarded(env: Closable) -> str:
    """Close an env after a failure; a description of a further error, "" for none."""
    try:
        close(env)
    except Exception as error:
        return f"; closing its env raised {type(error).__name__}: {error}"
    return ""
