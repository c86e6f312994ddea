"""A queue in a file, and sources that read it."""

import pytest

from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.cluster.source import PipelineBatchSource


@pytest.fixture
async def path(tmp_path):
    return tmp_path / "queue.sqlite3"


@pytest.fixture
async def opened(path):
    """Makes sources of one queue, as a trainer that is started again would."""
    made = []

    def source(**options):
        options = {"groups_per_batch": 2, "group_size": 2, **options}
        made.append(PipelineBatchSource(SQLiteQueue(path), **options))
        return made[-1]

    yield source
    for each in made:
        await each.aclose()


@pytest.fixture
async def queue(path):
    queue = SQLiteQueue(path)
    yield queue
    await queue.aclose()
