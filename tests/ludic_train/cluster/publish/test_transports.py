"""Files of params, and work in threads beside the event loop."""

import gc
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
import torch

from ludic_train.cluster.publish.transports import FileWire, in_thread
from ludic_train.errors import PublishError
from ludic_vllm.wire import packed

HANGING = """
import asyncio, time
from ludic_train.cluster.publish.transports import in_thread

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


PARAMS = [("a", torch.ones(3)), ("empty", torch.ones(0)), ("b", torch.ones(2))]


def sent(wire, params, chunk_bytes=1):
    """Paths of the chunks of a publication before its swap, with the bytes of each."""
    found = {}
    for chunk in packed(params, chunk_bytes=chunk_bytes, allocate=wire.allocated):
        path = Path(wire.announced(chunk, ["here"])["here"]["path"])
        found[path] = path.read_bytes()
        wire.release(swapped=False)
    return found


def test_files_of_a_shared_folder_have_names_until_the_swap(tmp_path):
    wire = FileWire(tmp_path)
    sent(wire, PARAMS)
    assert len(list(tmp_path.iterdir())) == 3
    wire.release(swapped=True)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder in place of shared memory."""
    monkeypatch.setattr("ludic_train.cluster.publish.transports.SHARED_MEMORY", tmp_path)
    return tmp_path


def test_shared_memory_is_used_again_by_the_next_publication_and_ends_with_the_wire(shared):
    wire = FileWire()
    for value in range(3):
        params = [(name, torch.full_like(param, value)) for name, param in PARAMS]
        found = sent(wire, params)
        wire.release(swapped=True)
        assert [len(content) for content in found.values()] == [64, 0, 64]
        assert [struct.unpack_from("2f", content) for content in found.values() if content] == [
            (value, value)
        ] * 2
        # Each chunk has a file of its own until the swap.
        assert {path.name for path in found} == {"0.bin", "1.bin", "2.bin"}
    del wire
    gc.collect()
    assert list(shared.iterdir()) == []


def test_shared_memory_that_a_publication_does_not_use_is_freed(shared):
    wire = FileWire()
    for params in (PARAMS, PARAMS[:1]):
        sent(wire, params)
        wire.release(swapped=True)
    assert [path.name for path in shared.glob("*/*")] == ["0.bin"]


def test_shared_memory_beyond_the_limit_has_no_name_once_servers_have_it(shared, monkeypatch):
    monkeypatch.setattr("ludic_train.cluster.publish.shared_memory.KEPT_BYTES", 100)
    wire = FileWire()
    for _ in range(2):
        found = sent(wire, PARAMS)
        assert [path.name for path in found] == ["0.bin", "1.bin", "chunk.bin"]
        assert struct.unpack_from("2f", list(found.values())[2]) == (1, 1)
        assert sorted(path.name for path in shared.glob("*/*")) == ["0.bin", "1.bin"]
        wire.release(swapped=True)


HOLDER = """
import sys, time
from pathlib import Path
from ludic_train.cluster.publish.shared_memory import SharedBuffers

buffers = SharedBuffers(Path(sys.argv[1]))
buffers.buffer(64)
print("made", flush=True)
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
"""


def test_shared_memory_of_a_killed_process_is_freed_by_the_next_one(shared, monkeypatch, tmp_path):
    monkeypatch.setattr("ludic_train.cluster.publish.shared_memory.ORPHAN_S", 0)
    end = tmp_path.parent / f"{tmp_path.name}-end"
    words = ["-c", HOLDER, str(shared), str(end)]
    killed, living = (forked.Python(words, stdout=subprocess.PIPE) for _ in range(2))
    with killed, living:
        assert [each.stdout.readline() for each in (killed, living)] == ["made\n"] * 2
        assert len(list(shared.iterdir())) == 2
        killed.kill()
        killed.wait()
        wire = FileWire()
        sent(wire, PARAMS)
        # Its own, and that of the process that lives.
        assert len(list(shared.iterdir())) == 2
        end.touch()
        living.wait()
    assert len(list(shared.iterdir())) == 1


@pytest.mark.parametrize("in_shared_memory", [True, False])
def test_a_file_system_without_room_is_an_error_and_no_crash(shared, in_shared_memory):
    wire = FileWire() if in_shared_memory else FileWire(shared)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(PublishError, match=r"no room for 4032 bytes of params in .*TcpWire"):
            sent(wire, [("a", torch.ones(1000))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    wire.release(swapped=True)
    assert list(shared.glob("**/*.bin")) == []
