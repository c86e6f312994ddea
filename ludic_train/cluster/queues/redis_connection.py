"""Connections to Redis, and errors of our own for its refusals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ludic_train.errors import QueueError, QueueReset, QueueUnavailable, Superseded, TrainError
from ludic_train.queue_urls import without_password

REFUSED = exceptions.AuthenticationError, exceptions.AuthorizationError
AWAY = (
    *(exceptions.ConnectionError, exceptions.TimeoutError, OSError),
    *(exceptions.ClusterDownError, exceptions.TryAgainError, exceptions.ReadOnlyError),
)
# Signs of a server that cannot do now what it will do later; scripts quote them in a sentence.
TEMPORARY = ("LOADING", "OOM ", "'maxmemory'", "MISCONF", "NOREPLICAS", "BUSY ", "UNBLOCKED")


def redis_client(url: str, timeout_s: float) -> Redis:
    """A client of the Redis at `url`, which takes `timeout_s` seconds at most to connect.

    It is not connected yet: a server that is away is an error of its first command. Its commands
    have no time limit of their own, see `redis_call`.
    Raises QueueError for a URL that is none, or with options that no queue can work with.
    """
    try:
        # A silent retry would hide groups that a lost response has delivered.
        redis: Redis = Redis.from_url(
            url,
            retry=Retry(NoBackoff(), 0),
            # With a limit, redis-py sends by asyncio.wait_for, which loses a cancellation in Python
            # 3.11: a reader that was told to end went on, and its trainer waited for ever.
            socket_timeout=None,
            socket_connect_timeout=timeout_s,
            # The third protocol returns maps where the second returns lists: one form to parse.
            protocol=2,
        )
        # Made and thrown away: only a connection checks the options, and only when it is used.
        pool = redis.connection_pool
        pool.connection_class(**pool.connection_kwargs)
        _check_database(url)
    except (ValueError, TypeError) as error:
        # The message may quote a piece of the password, and so would the chain of errors.
        detail = "" if "@" in url else f": {error}"
        raise QueueError(
            f"{without_password(url)!r} is no URL of a Redis{detail}; write "
            "redis://user:password@host:6379/0, with %40 for @, %2F for / and %23 for # in the "
            "password"
        ) from None
    if pool.connection_kwargs.get("decode_responses"):
        raise QueueError("groups are bytes; remove decode_responses from the URL")
    return redis


def _check_database(url: str) -> None:
    """Raise ValueError for a database that redis-py would take to be 0."""
    parts = urlsplit(url)
    named = parts.path.strip("/")
    if parts.scheme != "unix" and named and not named.isdigit():
        raise ValueError(f"the database {named!r} is no number")


@asynccontextmanager
async def redis_call(timeout_s: float) -> AsyncIterator[None]:
    """Limits commands to `timeout_s` seconds; redis-py's errors become errors of our own.

    QueueUnavailable for a server that is away or overloaded: the call may be made again, and may
    have happened. QueueError for a refusal that will not change, Superseded and QueueReset for the
    errors of our scripts.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise QueueUnavailable(f"no answer from Redis in {timeout_s:g} s") from error
    # Before AWAY: these are connection errors too for redis-py, and would be tried for minutes.
    except REFUSED as error:
        raise QueueError(f"Redis refused: {error}; check user and password of the URL") from error
    except AWAY as error:
        raise QueueUnavailable(f"{type(error).__name__}: {error}") from error
    except exceptions.ResponseError as error:
        raise _meaning(str(error)) from error


def _meaning(message: str) -> TrainError:
    """The error for a refusal, by its text: Redis has no error codes."""
    # A stream that was deleted has no consumer group, so a read finds NOGROUP instead of RESET.
    if "SUPERSEDED" in message:
        return Superseded("another trainer has taken this queue over; start one per queue key")
    if "RESET" in message or "NOGROUP" in message:
        return QueueReset(f"the queue has forgotten its reader: {message}")
    if any(sign in message for sign in TEMPORARY):
        # All scripts, and commands outside of them, are refused for one reason.
        reason = message.partition(" script: ")[0]
        return QueueUnavailable(f"Redis refused for now: {reason}")
    return QueueError(f"Redis refused: {message}")


async def check_server(redis: Redis, timeout_s: float) -> None:
    """Raise QueueError where the server may remove groups to make room for other keys.

    Logs a warning where nothing keeps them when it dies.
    """
    log = logging.getLogger(__name__)
    try:
        async with redis_call(timeout_s):
            info: Any = await redis.info()
    except QueueError as error:
        # A user with few rights may not read this; the queue works for it all the same.
        if not isinstance(error.__cause__, exceptions.NoPermissionError):
            raise
        log.warning("whether Redis keeps groups, or evicts them, is unknown: %s", error)
        return
    policy = str(info.get("maxmemory_policy", ""))
    if info.get("maxmemory") and policy.startswith("allkeys"):
        raise QueueError(
            f"maxmemory-policy={policy}: this Redis removes groups when its memory is full; "
            "set maxmemory-policy noeviction, so that actors wait instead"
        )
    if not info.get("aof_enabled") and not info.get("connected_slaves"):
        log.warning(
            "this Redis has no append-only file and no replica: if it dies, the groups that "
            "wait in it are gone; set appendonly yes"
        )
