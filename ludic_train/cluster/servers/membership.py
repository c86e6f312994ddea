"""A server that joins a run: on the run's registry as long as it responds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ludic_gym.errors import ConfigError
from ludic_train.cluster.address import Address, read_address
from ludic_train.cluster.loop_thread import LoopThread
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.queues.open_queue import open_registry
from ludic_train.errors import PublishError, QueueError, QueueUnavailable
from ludic_train.queue_urls import REDIS, refuse_password, without_password

if TYPE_CHECKING:
    from ludic_train.cluster.queues.run_registry import RunRegistry

# Between two renewals of a lease, and the limit of the response that is requested before each.
RENEW_S, ANSWER_S = 3.0, 5.0


@contextmanager
def joined(run: Path, url: str, queue: str | None = None) -> Iterator[None]:
    """Have the server at `url` on the registry of a run inside the block, in a thread of its own.

    run: its folder, in which a trainer may have to write its queue still, or another one later.
    queue: URL of the queue, where it has another address here than at the trainer.
    Raises ConfigError for a queue that is a file, or a URL with a password.
    """
    refuse_password(queue)
    address = read_address(run)
    where = queue or (address.url if address else None)
    if where is not None and not where.startswith(REDIS):
        raise ConfigError(f"{without_password(where)} is no Redis, by which servers join a run")
    thread = LoopThread("join")
    thread.start(keep_joined(run, url, queue)).add_done_callback(_note_end)
    try:
        yield
    finally:
        thread.close()


async def keep_joined(run: Path, url: str, queue: str | None = None) -> None:
    """Renew the lease of the server at `url`, until cancelled; see `joined`."""
    while True:
        address = read_address(run)
        if address is None:
            await asyncio.sleep(RENEW_S)
            continue
        where = queue or address.url
        async with open_registry(where, address.key, address.password) as registry:
            try:
                await _renew_while_same(run, address, registry, url)
            finally:
                # A Redis that is away forgets the server by itself.
                with suppress(QueueUnavailable):
                    await registry.leave(url)


async def _renew_while_same(run: Path, address: Address, registry: RunRegistry, url: str) -> None:
    """Renew the lease until the run in the folder is another one."""
    log, is_up, is_away = logging.getLogger(__name__), False, False
    while (now := read_address(run)) is not None and now.key == address.key:
        try:
            # A server that hangs must lose its lease, though this thread lives.
            if await _responds(url) and await registry.join(url):
                log.warning("%s has joined the run in %s", url, run)
            is_up, is_away = True, False
        except QueueUnavailable as error:
            if not is_away:
                log.warning("the registry of %s is away: %s", run, error)
            is_away = True
        await asyncio.sleep(RENEW_S if is_up else RENEW_S / 10)


async def _responds(url: str) -> bool:
    async with aclosing(ControlClient(url, limit_s=ANSWER_S)) as server:
        with suppress(PublishError):
            await server.text("GET", "/health")
            return True
        return False


def _note_end(joining: Future[None]) -> None:
    """Log the error by which a server has left its run, if it did."""
    error = None if joining.cancelled() else joining.exception()
    if isinstance(error, ConfigError | QueueError):
        logging.getLogger(__name__).error("the server has left the run: %s", error)
    elif error is not None:
        raise error
