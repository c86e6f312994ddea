"""One set of processes, and what a run of them comes to if nothing happens to it."""

import asyncio
from itertools import count

import pytest
from faults.scene import BATCH, UPDATES, Processes, Scene, each_twice, push
from made_once import made_once
from redis_server import RedisServer

AOF = ("--appendonly", "yes", "--appendfsync", "always")
numbers = count()


@pytest.fixture(scope="session")
def processes():
    processes = Processes()
    yield processes
    processes.close()


@pytest.fixture
async def scene(processes, redis_server, tmp_path):
    scene = Scene(processes, redis_server, tmp_path / "run", f"faults{next(numbers)}")
    yield scene
    await scene.queue.aclose()


@pytest.fixture
async def own_scene(processes, tmp_path):
    """As `scene`, with a server that may be killed and that keeps all it was told."""
    server = RedisServer(tmp_path, *AOF)
    scene = Scene(processes, server, tmp_path / "run", "k")
    yield scene
    await scene.queue.aclose()
    server.stop()


@pytest.fixture(scope="session")
def undisturbed(processes, redis_server, tmp_path_factory):
    """The params of a run to which nothing happened."""

    async def run(folder):
        scene = Scene(processes, redis_server, folder, "undisturbed")
        await push(scene.queue, *range(UPDATES * BATCH))
        await scene.finished(scene.train())
        assert scene.rows() == each_twice(*range(UPDATES * BATCH))
        await scene.queue.aclose()

    folder = made_once(tmp_path_factory, "undisturbed", lambda folder: asyncio.run(run(folder)))
    return (folder / "digest").read_text()
