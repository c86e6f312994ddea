"""Waiting for room in a queue that others fill and empty."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

SHORTEST_S, LONGEST_S = 0.002, 0.2


async def until_room(room: Callable[[], Awaitable[int]]) -> int:
    """The room that there is, once there is some."""
    pause_s = SHORTEST_S
    while (found := await room()) <= 0:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_S)
    return found
