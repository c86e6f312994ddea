import asyncio

import pytest

from ludic_gym.rollout.stream import Backlog


async def begin(backlog, begun, name):
    """A result, begun once there is room for it."""
    await backlog.wait_for_room()
    begun.append(name)
    await asyncio.sleep(0)
    backlog.put(name)


async def pause():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_without_room_no_result_is_begun_until_half_of_them_are_taken():
    backlog, begun = Backlog(4), []
    for number in range(4):
        backlog.put(number)
    producers = [asyncio.create_task(begin(backlog, begun, name)) for name in "abc"]
    await pause()
    await backlog.get()
    await pause()
    # Three wait, more than half of the room.
    assert begun == []
    await backlog.get()
    await pause()
    # The last producer goes first. Two more waited, so there was room for two.
    assert begun == ["c", "b"]
    assert [await backlog.get() for _ in range(4)] == [2, 3, "c", "b"]
    assert await backlog.get() == "a"
    await asyncio.gather(*producers)


async def test_a_consumer_that_was_cancelled_misses_nothing():
    backlog = Backlog(1)
    given_up = asyncio.create_task(backlog.get())
    await pause()
    given_up.cancel()
    await pause()
    backlog.put("a")
    assert await backlog.get() == "a"


@pytest.mark.parametrize("room", [1, 2, 5])
@pytest.mark.parametrize("producers", [1, 4, 30])
@pytest.mark.parametrize("waits", [0, 1, 3])
async def test_every_result_of_every_producer_arrives(room, producers, waits):
    backlog = Backlog(room)

    async def produce(number):
        for turn in range(10):
            await backlog.wait_for_room()
            for _ in range(waits):
                await asyncio.sleep(0)
            backlog.put((number, turn))

    tasks = [asyncio.create_task(produce(number)) for number in range(producers)]
    async with asyncio.timeout(10):
        found = [await backlog.get() for _ in range(10 * producers)]
        await asyncio.gather(*tasks)
    assert sorted(found) == [(n, turn) for n in range(producers) for turn in range(10)]


async def test_a_producer_that_is_cancelled_as_it_is_woken_leaves_its_turn_to_the_next():
    backlog, begun = Backlog(1), []
    backlog.put("a")
    next_one, woken = (asyncio.create_task(begin(backlog, begun, name)) for name in ("b", "c"))
    await pause()
    # It wakes the last producer, which is cancelled before it runs.
    await backlog.get()
    woken.cancel()
    await pause()
    assert begun == ["b"]
    assert await backlog.get() == "b"
    await next_one
