"""State and load of inference servers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from ludic_gym.clients.openai import root_address
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.errors import PublishError

# Seconds per request. A server with a long queue responds late.
LIMIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """State and load of a server.

    version: of its params. is_paused: True between /pause and /resume.
    running, waiting: numbers of requests. cache: used share of its key-value cache, in [0, 1].
    sampled: tokens since it started.
    error: the reason for which nothing else is known; "" without one.
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
    """The state of each server, in the order of `urls`; requests run in parallel.

    A server without a valid response within LIMIT_S seconds has an `error`; nothing is raised.
    """
    return list(await asyncio.gather(*(_status(root_address(url)) for url in urls)))


async def _status(url: str) -> Status:
    """The state of one server, from three of its routes."""
    async with aclosing(ControlClient(url, limit_s=LIMIT_S)) as server:
        try:
            version = (await server.get("/weight_info"))["weight_version"]
            paused = (await server.get("/is_paused"))["is_paused"]
            numbers = totals(await server.text("GET", "/metrics"))
            return Status(
                url=url,
                version=str(version),
                is_paused=bool(paused),
                running=int(numbers["vllm:num_requests_running"]),
                waiting=int(numbers["vllm:num_requests_waiting"]),
                cache=numbers["vllm:kv_cache_usage_perc"],
                sampled=int(numbers["vllm:generation_tokens_total"]),
            )
        except PublishError as error:
            return Status(url=url, error=str(error))
        # OverflowError is from int(inf): Prometheus' format has infinities.
        except (KeyError, ValueError, OverflowError) as error:
            return Status(url=url, error=f"its responses differ from vLLM's: {error!r}")


def totals(metrics: str) -> dict[str, float]:
    """The metrics of Prometheus' text format, summed over their labels; 0 for all others."""
    found: dict[str, float] = defaultdict(float)
    for line in metrics.splitlines():
        if line and not line.startswith("#"):
            label, _, value = line.rpartition(" ")
            # The sum is over vLLM's engines, one per data-parallel rank.
            found[label.partition("{")[0]] += float(value)
    return found
