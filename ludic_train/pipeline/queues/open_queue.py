"""The queue that a URL names."""

from __future__ import annotations

from ludic_train.errors import QueueError
from ludic_train.pipeline.queues.base import MAX_QUEUED, GroupQueue, WhenFull, without_password
from ludic_train.pipeline.queues.sqlite import SQLiteQueue

REDIS = ("redis://", "rediss://", "unix://")
FILE = "file://"


def open_queue(
    url: str, key: str, *, max_queued: int = MAX_QUEUED, when_full: WhenFull = "block"
) -> GroupQueue:
    """The queue `key` at a URL: redis://, rediss:// or unix:// for Redis, file://PATH for a file.

        queue = open_queue("redis://localhost:6379", "my-run")
        queue = open_queue("file:///tmp/my-run.queue", "my-run")

    key: separates the queues of one Redis; a file holds one queue, whatever its key.
    max_queued, when_full: as in RedisQueue and SQLiteQueue.
    No connection is made to a Redis before the first call. Raises QueueError for another URL, and
    for a file that cannot be opened.
    """
    if url.startswith(REDIS):
        # redis-py takes a fifth of a second to import, which `ludic top --help` should not.
        from ludic_train.pipeline.queues.redis_stream import RedisQueue

        return RedisQueue(url, key, max_queued=max_queued, when_full=when_full)
    if url.startswith(FILE) and url != FILE:
        return SQLiteQueue(url.removeprefix(FILE), max_queued=max_queued, when_full=when_full)
    raise QueueError(
        f"{without_password(url)!r} names no queue; write redis://HOST:PORT, or file://PATH"
    )
