"""A Redis that the tests of this folder share."""

import pytest
from redis_server import PROGRAM, RedisServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A server for all tests that neither kill nor pause it; each takes a key of its own."""
    if PROGRAM is None:
        pytest.skip("there is no redis-server here")
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()
