"""A Redis that the tests of this folder share, and disks of their own."""

import pytest
import small_disk
from redis_server import PROGRAM, RedisServer

from ludic_train.cluster.queues import redis_queue, retry, sqlite_queue


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A server for all tests that neither kill nor pause it; each takes a key of its own."""
    if PROGRAM is None:
        pytest.skip("there is no redis-server here")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def disk(tmp_path):
    """A small disk, which a test may fill."""
    yield from small_disk.small_disk(tmp_path / "disk")


@pytest.fixture
def brief_readers(monkeypatch):
    """Readers of queues count as dead 0.4 s after their last sign, not 5 s."""
    for module in (retry, redis_queue, sqlite_queue):
        monkeypatch.setattr(module, "READER_ALIVE_S", 0.4)
