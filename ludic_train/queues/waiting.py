"""Waiting for room in a queue that others fill and empty."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

SHORTEST_S, LONGEST_S = 0.002, 0.2


async def until_room(room: Callable[[], Awaitable[int]], *, known: int = 0) -> None:
    """Return once there is room for a group; at once where some is `known`."""
    pause_s = SHORTEST_S
    while known <= 0:
        known = await room()
        if known <= 0:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_S)
