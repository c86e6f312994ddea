"""Waiting for several coroutines at once, with nothing left running afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def gathered(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results in order. The first error cancels the others and is raised."""
    waiting = list(coroutines)
    if len(waiting) == 1:
        return [await waiting[0]]
    tasks = [asyncio.ensure_future(coroutine) for coroutine in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancelled(tasks)


async def cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel what still runs and wait until all of it has ended."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
