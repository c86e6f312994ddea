"""One queue in Redis, in a file and in memory."""

from contextlib import suppress
from itertools import count

import pytest

from ludic_train.cluster.queues.redis_queue import RedisQueue
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue

numbers = count()


@pytest.fixture(params=["redis", "file", "memory"])
async def opened(request, tmp_path):
    """Opens the same queue each time, as another process would where that can be."""
    made = []

    if request.param == "redis":
        url, own = request.getfixturevalue("redis_server").url, f"q{next(numbers)}"

    def one_more(name="queue", **options):
        if request.param == "redis":
            made.append(RedisQueue(url, f"{own}-{name}", **options))
        elif request.param == "file":
            made.append(SQLiteQueue(tmp_path / name, **options))
        elif not made or name != "queue":
            made.append(SQLiteQueue(None, **options))
        return made[-1]

    yield one_more
    for queue in made:
        with suppress(Exception):
            await queue.aclose()


@pytest.fixture
def key():
    """Name of the queue that `made` makes."""
    return f"r{next(numbers)}"


@pytest.fixture
async def made(redis_server, key):
    """Makes queues of the shared server, and closes them."""
    found = []

    def make(url=redis_server.url, **options):
        found.append(RedisQueue(url, key, **options))
        return found[-1]

    yield make
    for queue in found:
        await queue.aclose()
