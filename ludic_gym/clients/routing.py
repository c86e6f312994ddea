"""The server of a request: one that holds its prefix, unless another has far less to do."""

from __future__ import annotations

import asyncio
import random
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

# Pieces of prompts whose server is remembered: those of 10,000 dialogs or more.
REMEMBERED = 2**16
# Load of a server that gives no figures in time, above that of any other.
SILENT = 10**6
BLOCK_TOKENS = 64
_REQUESTS = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


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
