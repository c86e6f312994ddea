import asyncio
import gc
import subprocess
import sys
import threading
from functools import partial

import pytest

from ludic_gym.concurrency import WorkerThread, gather_all


async def value(result):
    await asyncio.sleep(0)
    return result


async def test_results_are_gathered_in_order():
    assert await gather_all(value(i) for i in range(3)) == [0, 1, 2]
    assert await gather_all([]) == []


async def test_the_first_error_stops_the_others():
    stopped = asyncio.Event()

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def fails():
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await gather_all([endless(), fails()])

    assert stopped.is_set()


async def test_a_worker_returns_and_raises_what_its_calls_do():
    worker = WorkerThread("w")

    def fails():
        raise ValueError("broken")

    assert await worker.run(lambda: 3) == 3
    with pytest.raises(ValueError, match="broken"):
        await worker.run(fails)
    assert await worker.run(threading.get_ident) == await worker.run(threading.get_ident)


async def test_a_call_that_raises_stop_iteration_is_not_waited_for_for_ever():
    with pytest.raises(RuntimeError, match="StopIteration"):
        await WorkerThread("w").run(iter([]).__next__)


async def test_a_thread_ends_with_its_last_call_or_its_worker():
    async def ended(thread):
        for _ in range(200):
            if not thread.is_alive():
                return True
            await asyncio.sleep(0.01)
        return False

    calls = []
    finished = WorkerThread("w")
    first = await finished.run(threading.current_thread)
    finished.finish(lambda: calls.append("last"))
    forgotten = WorkerThread("w")
    second = await forgotten.run(partial(lambda worker: threading.current_thread(), forgotten))
    del forgotten
    gc.collect()

    assert await ended(first)
    assert calls == ["last"]
    assert await ended(second)


def test_a_call_that_never_returns_does_not_hold_up_the_end_of_the_program():
    program = """
import asyncio, threading
from ludic_gym.concurrency import WorkerThread

async def main():
    try:
        await asyncio.wait_for(WorkerThread("w").run(threading.Event().wait), 0.05)
    except TimeoutError:
        print("given up")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30)

    assert done.stdout == b"given up\n"
    assert done.returncode == 0
