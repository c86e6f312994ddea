"""The server of a request, and the number of requests that it gets at once.

A server is chosen that holds the request's prefix, unless another has far less to do. Its pace
follows its rejections and its headers.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

# Pieces of prompts whose server is remembered: those of 10,000 dialogs or more.
REMEMBERED = 2**16
# Load of a server that gives no figures in time, above that of any other.
SILENT = 10**6
BLOCK_TOKENS = 64
_REQUESTS = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


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


@dataclass(slots=True, eq=False)
class Server:
    """A server and its load.

    in_flight: requests of this program without a response. elsewhere: those of other programs, by
    the server's figures at the last look.
    limits: time limits of the requests in flight, with their event loops.
    is_dropped: True once it is in use no more.
    """

    url: str
    in_flight: int = 0
    elsewhere: int = 0
    limits: dict[asyncio.Timeout, asyncio.AbstractEventLoop] = field(default_factory=dict)
    is_dropped: bool = False

    @property
    def load(self) -> int:
        """Requests that the server has."""
        return self.in_flight + self.elsewhere

    def note(self, metrics: str | None) -> None:
        """Take over what the server's Prometheus page says; None if it did not come in time."""
        if metrics is None:
            self.elsewhere = SILENT
            return
        total = sum(int(float(number)) for number in _REQUESTS.findall(metrics))
        self.elsewhere = max(0, total - self.in_flight)

    def drop(self) -> None:
        """End the requests in flight by their time limits, each in its own event loop."""
        self.is_dropped = True
        for limit, loop in list(self.limits.items()):
            # A loop that was closed has no requests any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._end, limit)

    def _end(self, limit: asyncio.Timeout) -> None:
        # It may have had its response since.
        if limit in self.limits:
            limit.reschedule(0)


class Router:
    """Chooses among the servers of a client, and remembers which one has which prefix.

    A server's cache of prefixes saves the prefill of a dialog's earlier turns, and of a prompt that
    several episodes share. It is chosen for that as long as it has at most 1.2 times the requests
    of the least loaded one, and one; beyond that, in a share of the cases in which it would come
    back to the mean.
    draw: numbers from [0, 1), by which one of several equal servers is chosen.
    """

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self.servers: list[Server] = []
        self._draw = draw
        self._holders: OrderedDict[int, Server] = OrderedDict()

    def use(self, urls: Sequence[str]) -> None:
        """Choose among these addresses; a server that was among them before keeps its counts.

        Requests in flight to a server that is not among them any more end by a timeout.
        """
        servers_before = {server.url: server for server in self.servers}
        self.servers = [servers_before.get(url) or Server(url) for url in urls]
        for server in servers_before.values():
            if server not in self.servers:
                server.drop()

    def choose(self, prefix: Sequence[Hashable] = (), *, tried: Server | None = None) -> Server:
        """The server of a request, which it will have the prefix of from now on.

        prefix: the prompt in pieces, each of which is the same as long as the prompt only grows.
        tried: a server that has just failed, and is chosen only where there is no other: it may
            have the fewest requests because it fails fast.
        """
        if len(self.servers) == 1:
            return self.servers[0]
        able = [server for server in self.servers if server is not tried] or self.servers
        least = min(server.load for server in able)
        keys = prefix_keys(prefix)
        holders = (self._holders.get(key) for key in reversed(keys))
        chosen = next((holder for holder in holders if holder in able), None)
        if chosen is not None and chosen.load > 1.2 * least + 1:
            # Not always: many programs see the same figures, and would all leave together.
            mean = sum(server.load for server in able) / len(able)
            chosen = None if self._draw() > mean / chosen.load else chosen
        if chosen is None:
            idlest = [server for server in able if server.load == least]
            # Drawn, because many programs begin with the same list of servers.
            chosen = idlest[int(self._draw() * len(idlest))]
        for key in keys:
            self._holders[key] = chosen
            self._holders.move_to_end(key)
        while len(self._holders) > REMEMBERED:
            self._holders.popitem(last=False)
        return chosen


def prefix_keys(prefix: Sequence[Hashable]) -> list[int]:
    """A hash for each piece and all before it.

    >>> prefix_keys(["a", "b"])[0] == prefix_keys(["a", "c"])[0]
    True
    """
    keys, key = list[int](), 0
    for piece in prefix:
        key = hash((key, piece))
        keys.append(key)
    return keys


def token_blocks(token_ids: Sequence[int]) -> list[Hashable]:
    """Whole blocks of a prompt, as servers cache them.

    >>> [len(block) for block in token_blocks(range(150))]
    [64, 64]
    """
    ends = range(BLOCK_TOKENS, len(token_ids) + 1, BLOCK_TOKENS)
    return [tuple(token_ids[end - BLOCK_TOKENS : end]) for end in ends]


@asynccontextmanager
async def droppable(server: Server, limit: asyncio.Timeout) -> AsyncIterator[None]:
    """A context whose time limit ends at once where the server is dropped."""
    server.limits[limit] = asyncio.get_running_loop()
    # It may have been dropped while the request waited for a slot.
    if server.is_dropped:
        limit.reschedule(0)
    try:
        yield
    finally:
        del server.limits[limit]
