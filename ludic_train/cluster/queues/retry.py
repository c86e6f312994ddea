"""Waits for a queue: for its server, for room, and for a reader that may be dead."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ludic_train.cluster.queues.base import READER_ALIVE_S, GroupQueue
from ludic_train.errors import QueueError, QueueUnavailable, Superseded

T = TypeVar("T")
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 15.0
BEAT_S = 1.0
# Calls of this process that wait, by reason: an actor makes dozens at once.
_reasons: Counter[str] = Counter()


async def retry(
    call: Callable[[], Awaitable[T]], *, patience_s: float = 600.0, what: str = "the queue"
) -> T:
    """Result of `call`, which is repeated with growing delays while it raises QueueUnavailable.

    call: must be safe to make again, because the first one may have happened all the same.
    what: name of the server in messages. A reason for which several calls wait is logged once.
    Raises QueueError after `patience_s` seconds without an answer; other errors at once.
    """
    log = logging.getLogger(__name__)
    # The loop's clock, which no change of the system's time moves.
    started, delay_s, waits = asyncio.get_running_loop().time(), FIRST_DELAY_S, set[str]()
    try:
        while True:
            try:
                return await call()
            except QueueUnavailable as error:
                waited, reason = asyncio.get_running_loop().time() - started, str(error)
                if waited > patience_s:
                    raise QueueError(f"{what} was away for {waited:.0f} s: {reason}") from error
                if not _reasons[reason]:
                    log.warning("waiting for %s, %.0f s at most: %s", what, patience_s, reason)
                _reasons.update({reason} - waits)
                waits.add(reason)
                # Spread, so that not all callers reach a server at once when it comes back.
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
                delay_s = min(2 * delay_s, LONGEST_DELAY_S)
    finally:
        _reasons.subtract(waits)


# Pauses between two looks at a full queue: short for a trainer that empties it now, longer for one
# that computes, since every waiting actor looks.
SHORTEST_S, LONGEST_S = 0.002, 0.2


async def wait_for_room(room: Callable[[], Awaitable[int]]) -> int:
    """Groups that there is room for, at least 1; waits for it, without a limit.

    Room is no reservation: others may push first.
    """
    pause_s = SHORTEST_S
    while (free := await room()) <= 0:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_S)
    return free


async def keep_alive(queue: GroupQueue) -> None:
    """Report that the reader lives until cancelled, or until another one has the queue."""
    # Whoever takes over next finds out why, and says so.
    with suppress(QueueError, Superseded):
        while True:
            await asyncio.sleep(BEAT_S)
            await retry(queue.beat)


async def seize(call: Callable[[], Awaitable[T | None]]) -> T:
    """Result of `call`, which takes a queue over, or returns None because its reader won a contest.

    Tried for as long as a reader that is dead may pass for alive.
    Raises Superseded where the reader lives.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READER_ALIVE_S + 1
    while (result := await call()) is None:
        if loop.time() > deadline:
            raise Superseded(
                "another trainer took this queue over from one that was running, and runs itself; "
                "this one stays down. Stop the other one to continue with this"
            )
        await asyncio.sleep(READER_ALIVE_S / 10)
    return result
