"""Sampling and changing params take turns."""

import asyncio

import pytest

from ludic_train.engine.request_gate import Aborted, Gate


class Work:
    """Requests that end when they are told to; `log` has what happened in order."""

    def __init__(self):
        self.log = []
        self.ends = asyncio.Event()
        self.gate = Gate(self._rest)

    async def _rest(self):
        self.log.append("rest")

    async def _request(self, name):
        self.log.append(f"{name} begins")
        await self.ends.wait()
        self.log.append(f"{name} ends")
        return name

    async def ask(self, name):
        """A request that is under way, or held."""
        task = asyncio.create_task(self.gate.let_in(lambda: self._request(name)))
        await turns()
        return task


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def work():
    return Work()


async def test_what_work_returns_and_raises_comes_out(work):
    work.ends.set()
    assert await (await work.ask("a")) == "a"

    async def fail():
        raise KeyError("b")

    with pytest.raises(KeyError, match="b"):
        await work.gate.let_in(fail)
    await turns()
    assert work.gate.running == 0


async def test_a_pause_waits_for_who_is_in_and_holds_who_comes(work):
    early = await work.ask("early")
    pausing = asyncio.create_task(work.gate.pause())
    await turns()
    late = await work.ask("late")
    assert (pausing.done(), work.gate.running, work.gate.waiting) == (False, 1, 1)
    work.ends.set()
    await pausing
    assert work.log == ["early begins", "early ends"]
    work.gate.resume()
    assert [await early, await late] == ["early", "late"]
    assert work.gate.waiting == 0


async def test_a_pause_that_aborts_ends_who_is_in(work):
    early = await work.ask("early")
    await work.gate.pause(abort=True)
    with pytest.raises(Aborted):
        await early
    assert work.gate.running == 0


async def test_who_is_cancelled_is_not_aborted_and_leaves(work):
    early = await work.ask("early")
    await_pause = asyncio.create_task(work.gate.pause())
    held = await work.ask("held")
    early.cancel()
    held.cancel()
    await await_pause
    assert (early.cancelled(), held.cancelled(), work.gate.waiting) == (True, True, 0)


async def test_resume_during_a_pause_that_waits_lets_others_in(work):
    await work.ask("early")
    pausing = asyncio.create_task(work.gate.pause())
    late = await work.ask("late")
    work.gate.resume()
    await turns()
    assert work.log == ["early begins", "late begins"]
    work.ends.set()
    await pausing
    assert await late == "late"


async def test_alone_nobody_is_in_and_the_sampler_rests(work):
    early = await work.ask("early")

    async def change(name):
        async with work.gate.alone():
            work.log.append(f"{name} changes")
            await turns()
            work.log.append(f"{name} has changed")

    changing = [asyncio.create_task(change(name)) for name in "xy"]
    late = await work.ask("late")
    work.gate.resume()
    work.ends.set()
    await asyncio.gather(early, late, *changing)
    x, y = (["rest", f"{name} changes", f"{name} has changed"] for name in "xy")
    assert work.log == ["early begins", "early ends", *x, *y, "late begins", "late ends"]


async def test_a_change_while_paused_leaves_it_paused(work):
    await work.gate.pause()
    async with work.gate.alone():
        pass
    held = await work.ask("held")
    assert (work.gate.is_paused, held.done(), work.log) == (True, False, ["rest"])
    held.cancel()


async def test_a_change_that_fails_opens_the_gate(work):
    with pytest.raises(KeyError):
        async with work.gate.alone():
            raise KeyError
    work.ends.set()
    assert await (await work.ask("a")) == "a"
