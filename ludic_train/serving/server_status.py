"""State and load of inference servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ludic_train.errors import PublishError
from ludic_train.publishers.control import ControlClient

if TYPE_CHECKING:
    import aiohttp

ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A server's state. cache: share of its key-value cache in use; sampled: tokens so far.

    error: why nothing else is known; "" where it is.
    """

    url: str
    version: str = ""
    is_paused: bool = False
    running: int = 0
    waiting: int = 0
    cache: float = 0.0
    sampled: int = 0
    error: str = ""


async def statuses(urls: Sequence[str]) -> list[Status]:
    """The state of each server; one that does not answer has an error."""
    import aiohttp

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session:
        roots = [url.rstrip("/").removesuffix("/v1") for url in urls]
        return list(await asyncio.gather(*(_status(url, session) for url in roots)))


async def _status(url: str, session: aiohttp.ClientSession) -> Status:
    server = ControlClient(url, session)
    try:
        return await _asked(url, server)
    except PublishError as error:
        return Status(url=url, error=str(error))
    except TimeoutError:
        return Status(url=url, error=f"no answer within {ANSWER_S:g} s")
    except (KeyError, ValueError, OverflowError) as error:
        return Status(url=url, error=f"it answers otherwise than vLLM does: {error!r}")


async def _asked(url: str, server: ControlClient) -> Status:
    version = (await server.get("/weight_info"))["weight_version"]
    paused = (await server.get("/is_paused"))["is_paused"]
    numbers = totals(await server.text("/metrics"))
    return Status(
        url=url,
        version=str(version),
        is_paused=bool(paused),
        running=int(numbers.get("vllm:num_requests_running", 0)),
        waiting=int(numbers.get("vllm:num_requests_waiting", 0)),
        cache=numbers.get("vllm:kv_cache_usage_perc", 0.0),
        sampled=int(numbers.get("vllm:generation_tokens_total", 0)),
    )


def totals(metrics: str) -> dict[str, float]:
    """The metrics of Prometheus' text format, added up over their labels."""
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        if line and not line.startswith("#"):
            label, _, value = line.rpartition(" ")
            name = label.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found
