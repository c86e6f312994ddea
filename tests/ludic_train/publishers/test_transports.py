"""Work in threads beside the event loop."""

import subprocess
import sys
import time

import pytest

from ludic_train.errors import PublishError
from ludic_train.publishers.transports import in_thread

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


def test_a_thread_that_hangs_does_not_delay_the_exit():
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=300, check=True
    )
    assert (done.stdout, done.stderr) == ("end\n", "")
