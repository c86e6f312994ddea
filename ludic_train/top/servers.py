"""The load of the servers that sample for a pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ludic_train.serving.server_status import Status, statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A server's state when it was asked last, and the tokens per second since the time before."""

    status: Status
    at_s: float
    tokens_per_s: float = 0.0


def next_load(before: Load | None, status: Status, at_s: float) -> Load:
    """The load at `at_s`, seconds of any clock; no rate where nothing is known from before."""
    seconds = 0.0 if before is None else at_s - before.at_s
    if before is None or seconds <= 0 or before.status.error or status.error:
        return Load(status=status, at_s=at_s)
    # A server that was started again counts from 0.
    sampled = max(0, status.sampled - before.status.sampled)
    return Load(status=status, at_s=at_s, tokens_per_s=sampled / seconds)


class ServerLoads:
    """Asks each server again and again; one that is silent holds up nobody but itself."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._newest = {
            url: Load(status=Status(url=url, error="no answer yet"), at_s=0.0) for url in urls
        }

    @property
    def newest(self) -> tuple[Load, ...]:
        """What is known of each server."""
        return tuple(self._newest.values())

    async def look(self) -> None:
        """Ask each server once."""
        await asyncio.gather(*map(self._look_at, self._newest))

    async def keep_looking(self, every_s: float) -> None:
        """Ask each server every so often, until this is cancelled."""

        async def keep_looking_at(url: str) -> None:
            while True:
                await self._look_at(url)
                await asyncio.sleep(every_s)

        await asyncio.gather(*map(keep_looking_at, self._newest))

    async def _look_at(self, url: str) -> None:
        (status,) = await statuses([url])
        now = asyncio.get_running_loop().time()
        self._newest[url] = next_load(self._newest[url], status, now)
