"""The queue that a URL names, and the registry beside it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from ludic_gym.errors import ConfigError
from ludic_train.cluster.queues.base import MAX_QUEUED, GroupQueue
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.errors import QueueError
from ludic_train.queue_urls import FILE, PASSWORD_VARIABLE, REDIS, has_password, without_password

if TYPE_CHECKING:
    from ludic_train.cluster.queues.run_registry import RunRegistry


def open_queue(
    url: str,
    key: str,
    *,
    password: str | None = None,
    max_queued: int = MAX_QUEUED,
) -> GroupQueue:
    """The queue `key` at a URL: redis://, rediss:// or unix:// for Redis, file://PATH for a file.

        queue = open_queue("redis://localhost:6379", "my-run")
        queue = open_queue("file:///tmp/my-run.queue", "my-run")

    key: separates the queues of one Redis; a file holds one queue, whatever its key.
    password: of a Redis whose URL has none; by default the value of PASSWORD_VARIABLE, if any.
    max_queued: as in RedisQueue.
    No connection is made to a Redis before the first call. Raises QueueError for another URL, and
    for a file that cannot be opened.
    """
    if url.startswith(REDIS):
        # redis-py takes a fifth of a second to import, which `ludic status --help` should not.
        from ludic_train.cluster.queues.redis_queue import RedisQueue

        url = _with_password(url, password or os.environ.get(PASSWORD_VARIABLE))
        return RedisQueue(url, key, max_queued=max_queued)
    if url.startswith(FILE) and url != FILE:
        return SQLiteQueue(url.removeprefix(FILE), max_queued=max_queued)
    raise QueueError(
        f"{without_password(url)!r} names no queue; write redis://HOST:PORT, or file://PATH"
    )


@asynccontextmanager
async def open_registry(
    url: str, key: str, password: str | None = None
) -> AsyncIterator[RunRegistry]:
    """The registry of a run, closed after the block. password: as of `open_queue`.

    Raises ConfigError for a queue that is a file, which has none.
    """
    if not url.startswith(REDIS):
        raise ConfigError(
            f"{without_password(url)!r} is no Redis: servers can join a run whose queue is one"
        )
    from ludic_train.cluster.queues.run_registry import RunRegistry

    registry = RunRegistry(_with_password(url, password or os.environ.get(PASSWORD_VARIABLE)), key)
    try:
        yield registry
    finally:
        await registry.aclose()


def _with_password(url: str, password: str | None) -> str:
    if not password or has_password(url):
        return url
    scheme, _, rest = url.partition("://")
    user, _, host = rest.rpartition("@")
    return f"{scheme}://{user}:{quote(password, safe='')}@{host}"
