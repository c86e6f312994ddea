"""Pace: the number of requests that one server gets at once, by its rejections and its headers."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

# Statuses of servers with too many requests: a rate limit, and Anthropic's overload.
BUSY = (429, 529)


class Pace:
    """Places for the requests in flight at one server, of one event loop.

    A rejection halves their number. Each response adds one, up to the number that was too many;
    beyond it, as many responses as there are places add one, up to `most`. After a rejection no
    request is sent until the pause ends that the server has named, or else until the next response
    or the end of `guess_s(rejections)`. Places are given by tickets, the lowest first, so that a
    rejected request comes before newer ones.
    patience: rejections without a response in between, after which requests are given up.
    limit: number of places. rejections: so far without a response in between.
    """

    def __init__(self, most: int, patience: int, guess_s: Callable[[int], float]) -> None:
        self.limit = float(most)
        self.rejections = 0
        self._most = most
        self._patience = patience
        self._guess_s = guess_s
        self._loop = asyncio.get_running_loop()
        self._taken = 0
        self._resumes = 0.0
        self._guessed = False
        self._attempts = count(1)
        self._open = set[int]()
        self._cut = 0
        self._too_many = 0.0
        # By ticket. A future that is done belongs to a request that has been cancelled.
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def given_up(self) -> bool:
        """True if the server has rejected more than `patience` requests in a row."""
        return self.rejections > self._patience

    @asynccontextmanager
    async def place(self, ticket: int) -> AsyncIterator[int]:
        """A place for one attempt; its number, for `rejected`."""
        if self._waiting or not self._free():
            await self._turn(ticket)
        else:
            self._taken += 1
        attempt = next(self._attempts)
        self._open.add(attempt)
        try:
            yield attempt
        finally:
            self._open.discard(attempt)
            self._taken -= 1
            self._fill()

    def served(self, pause_s: float = 0.0) -> None:
        """Note a response. pause_s: seconds until the server takes more, by its headers."""
        self.rejections = 0
        # Back to where it was at once: most rejections are of a moment, such as those of a window.
        step = 1.0 if self.limit + 1 < self._too_many else 1 / self.limit
        self.limit = min(self._most, self.limit + step)
        if self._guessed:
            self._resumes, self._guessed = 0.0, False
        if pause_s:
            self._hold(pause_s)

    def rejected(self, attempt: int, pause_s: float = 0.0) -> None:
        """Note a rejection. attempt: from `place`. pause_s: as the server has named it; 0: none."""
        # One cut for all that were sent before it: they met the same limit.
        first = attempt > self._cut
        if first:
            # Those that are older than the last cut are being served: the server works.
            if not any(other < self._cut for other in self._open):
                self.rejections += 1
            self._cut = next(self._attempts)
            self._too_many = min(self.limit, self._taken)
            self.limit = max(1.0, self._too_many / 2)
        if self.given_up:
            # The others shall fail at once, and not after a pause each.
            self._resumes = 0.0
        elif pause_s:
            self._guessed = False
            self._hold(pause_s)
        elif first:
            self._guessed = self._resumes <= self._loop.time()
            self._hold(self._guess_s(self.rejections))

    def _hold(self, seconds: float) -> None:
        self._resumes = max(self._resumes, self._loop.time() + seconds)
        # A little later: a timer that is early by a tick of the clock would find no free place.
        self._loop.call_later(seconds + 0.001, self._fill)

    def _free(self) -> bool:
        return self._taken < int(self.limit) and self._loop.time() >= self._resumes

    async def _turn(self, ticket: int) -> None:
        """Wait for a place."""
        turn = self._loop.create_future()
        heapq.heappush(self._waiting, (ticket, turn))
        # All that wait may have been cancelled, and places be free.
        self._fill()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._taken -= 1
                self._fill()
            raise

    def _fill(self) -> None:
        """Give the free places to the requests with the lowest tickets."""
        while self._waiting and self._free():
            _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
