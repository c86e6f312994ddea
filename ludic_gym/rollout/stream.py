"""EpisodeStream: many episodes at once, in order of completion."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ludic_gym.concurrency import Caught, cancel_all, closing_error_text
from ludic_gym.errors import ConfigError, EpisodeError
from ludic_gym.rollout.outcome import blame_of
from ludic_gym.rollout.pool import Closable, EnvPool, aclose
from ludic_gym.types import Episode, Rollout, Task

T = TypeVar("T")
E = TypeVar("E", bound=Closable)
# Plays the task in the env.
Play = Callable[[E, Task], Awaitable[tuple[Rollout, ...]]]
# Finished episodes that may wait for the caller. A thousand of them live long enough to set off
# full collections of Python's garbage, which with torch in memory take half of the time.
WAITING = 64


class Backlog(Generic[T]):
    """A queue from many producers to one consumer.

    Producers wait before they make a result, and not with one in hand: results that wait long are
    no longer in the processor's caches when they are read.

    room: number of results that may wait before no further one is begun.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._results: deque[T] = deque()
        self._consumer: asyncio.Future[None] | None = None
        # Producers without room. The last one goes first: they hold nothing, and its frame is
        # still in the caches.
        self._idle: list[asyncio.Future[None]] = []
        self._is_waking = False

    def put(self, result: T) -> None:
        """Add a result, in any case: what is begun is kept."""
        self._results.append(result)
        if self._consumer is not None and not self._consumer.done():
            self._consumer.set_result(None)

    async def get(self) -> T:
        """The oldest result; wait for it if needed."""
        while not self._results:
            self._consumer = asyncio.get_running_loop().create_future()
            await self._consumer
        result = self._results.popleft()
        # Before the last one is taken, so that the consumer seldom waits.
        if len(self._results) <= self._room // 2:
            self._wake()
        return result

    async def wait_for_room(self) -> None:
        """Return once another result may be begun."""
        if len(self._results) < self._room:
            return
        loop = asyncio.get_running_loop()
        while len(self._results) >= self._room:
            turn = loop.create_future()
            self._idle.append(turn)
            try:
                await turn
            finally:
                self._is_waking = False
                # One after the other: a producer that never waits for a model fills the room by
                # itself. One that is cancelled leaves its turn to the next.
                loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Wake one producer if there is room, unless one is being woken."""
        while self._idle and not self._is_waking and len(self._results) < self._room:
            turn = self._idle.pop()
            # Not one that was cancelled.
            if not turn.done():
                self._is_waking = True
                turn.set_result(None)


class EpisodeStream(Generic[E]):
    """Workers that take one task after the other from a shared iterator.

    jobs: a task, and the coroutine function that plays it in an env.
    envs: pool from which each episode gets its env.
    concurrency: number of workers. timeout_s: time limit of an episode, None for no limit.
    closes_envs: close the pool at the end of the stream.
    Raises ConfigError for a concurrency below 1 or a time limit that is not positive.
    """

    # A worker per slot instead of an asyncio task per episode, whose start costs as much as a short
    # episode. The iterator is read without a lock: `next` does not await.

    def __init__(
        self,
        jobs: Iterable[tuple[Task, Play[E]]],
        envs: EnvPool[E],
        *,
        concurrency: int,
        timeout_s: float | None,
        closes_envs: bool,
    ) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency is at least 1, got {concurrency}")
        if timeout_s is not None and timeout_s <= 0:
            raise ConfigError(f"timeout_s is positive or None, got {timeout_s}")
        self._jobs: Iterator[tuple[int, tuple[Task, Play[E]]]] = enumerate(jobs)
        self._envs = envs
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._closes_envs = closes_envs
        self._making = asyncio.Lock()
        # Episodes, and at a worker's end None, or the error from reading the tasks. A slow consumer
        # holds the workers back, so that finished episodes do not pile up.
        self._results: Backlog[Episode | BaseException | None] = Backlog(min(concurrency, WAITING))

    async def episodes(self) -> AsyncGenerator[Episode, None]:
        """All episodes; closing the generator cancels all workers and waits for them.

        Raises the first error of the iterator of jobs. Errors of episodes are in `Episode.error`.
        """
        workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        try:
            working = len(workers)
            while working:
                result = await self._results.get()
                # Raised here, so that the consumer of the stream gets it and not the log of
                # asyncio.
                if isinstance(result, BaseException):
                    raise result
                if result is None:
                    working -= 1
                else:
                    yield result
        finally:
            # Also after an error of a worker or of the consumer: no episode may outlive the stream.
            await cancel_all(workers)
            if self._closes_envs:
                await self._envs.aclose()

    async def _work(self) -> None:
        # `_episode` raises nothing: an error here is one of the tasks' iterator.
        with Caught(Exception) as failure:
            await self._results.wait_for_room()
            for index, (task, play) in self._jobs:
                self._results.put(await self._episode(index, task, play))
                await self._results.wait_for_room()
        self._results.put(failure.error)

    async def _episode(self, index: int, task: Task, play: Play[E]) -> Episode:
        """The episode, with its error if it failed; raises only if this worker is cancelled."""
        env: E | None = None
        # Any error of the env, the policy or a client is the result of this episode only.
        with Caught(Exception, asyncio.CancelledError) as failure:
            env = self._envs.idle(task)
            if env is None:
                # One after the other: envs may load the same file, or download it.
                async with self._making:
                    env = await self._in_time(self._envs.make(task))
            rollouts = await self._in_time(play(env, task))
            await self._envs.give_back(task, env)
            return Episode(index=index, task=task, rollouts=rollouts)
        # A failed env may be in any state: it does not go back to the pool.
        with Caught(Exception) as trouble:
            if env is not None:
                await aclose(env)
        worker = asyncio.current_task()
        # This worker is cancelled; not a policy that cancelled something it waited for.
        if isinstance(failure.error, asyncio.CancelledError) and worker and worker.cancelling():
            raise failure.error
        assert failure.error is not None
        text = failure.text + closing_error_text(trouble)
        return Episode(index=index, task=task, error=text, blame=blame_of(failure.error))

    async def _in_time(self, awaitable: Awaitable[T]) -> T:
        """The result of the awaitable. Raises EpisodeError after `timeout_s` seconds."""
        if self._timeout_s is None:
            return await awaitable
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return await awaitable
        except TimeoutError as error:
            # The env or a client may have a time limit of its own.
            if not limit.expired():
                raise
            raise EpisodeError(
                f"the episode took longer than timeout_s={self._timeout_s:g}"
            ) from error
