"""Files of params, and work in threads beside the event loop."""

import resource
import subprocess
import sys
import time

import pytest
import torch

from ludic_train.errors import PublishError
from ludic_train.publishers.transports import FileWire, in_thread
from ludic_vllm.wire import packed

HANGING = """
import asyncio, time
from ludic_train.publishers.transports import in_thread

async def main():
    in_thread(lambda: time.sleep(600)).cancel()
    await asyncio.sleep(0.1)

asyncio.run(main())
print("end", flush=True)
"""


async def test_a_result_comes_back_and_an_error_keeps_its_name():
    assert await in_thread(lambda: 7) == 7
    with pytest.raises(PublishError, match="ZeroDivisionError: division by zero"):
        await in_thread(lambda: 1 / 0)


async def test_a_result_that_is_no_longer_awaited_disturbs_nothing():
    abandoned = in_thread(lambda: time.sleep(0.05))
    abandoned.cancel()
    assert await in_thread(lambda: time.sleep(0.2)) is None
    assert abandoned.cancelled()


@pytest.mark.long
def test_a_thread_that_hangs_does_not_delay_the_exit():
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=300, check=True
    )
    assert (done.stdout, done.stderr) == ("end\n", "")


@pytest.mark.parametrize("shared", [True, False])
def test_files_of_a_shared_folder_have_names_until_the_swap(tmp_path, monkeypatch, shared):
    monkeypatch.setattr("ludic_train.publishers.transports.SHARED_MEMORY", tmp_path)
    wire = FileWire(tmp_path) if shared else FileWire()
    params = [("a", torch.ones(3)), ("empty", torch.ones(0)), ("b", torch.ones(2))]
    for chunk in packed(params, chunk_bytes=1, allocate=wire.allocated):
        wire.announced(chunk, [])
        wire.release(swapped=False)
    assert len(list(tmp_path.iterdir())) == (3 if shared else 0)
    wire.release(swapped=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_room_is_an_error_and_no_crash(tmp_path):
    wire = FileWire(tmp_path)
    (chunk,) = packed([("a", torch.ones(1000))], chunk_bytes=4000, allocate=wire.allocated)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(PublishError, match=r"no room for 4032 bytes of params in .*TcpWire"):
            wire.announced(chunk, ["here"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    wire.release(swapped=True)
    assert list(tmp_path.iterdir()) == []
