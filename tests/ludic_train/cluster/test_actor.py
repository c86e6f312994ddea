"""An actor with a scripted model and a queue in memory."""

import asyncio
from dataclasses import replace
from itertools import count, cycle, islice

import pytest

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.records import task_key
from ludic_gym.types import Sampling, Task
from ludic_train.cluster.actor import ActorOptions, run_pipeline_actor
from ludic_train.cluster.codec import group_from_bytes
from ludic_train.cluster.queues.base import Progress, Trained, TrainerReport
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.errors import ActorError, QueueUnavailable
from ludic_train.metrics import Stat, Total

PAIRS = ActorOptions(group_size=2, concurrency=4, heartbeat_s=0.05)
WANTED = TrainerReport(version=0, groups_per_batch=2, group_size=2, max_lag=1)


def sums(start=0):
    for seed in count(start):
        yield Task(env_id="ludic/Arithmetic-v0", seed=seed, sampling=Sampling(seed=seed))


def some_number(messages, sampling):
    return str(sampling.seed % 7)


class Plays:
    """An actor in the background, with what a test changes about it."""

    def __init__(self, script=some_number, *, tasks=None, options=PAIRS, queue=None):
        self.version = 0
        self.queue = queue or SQLiteQueue()
        self.client = ScriptedClient(script)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(
            run_pipeline_actor(
                sums() if tasks is None else tasks,
                lambda env: ChatPolicy(self.client, LatestObservation(), system_prompt=""),
                self.queue,
                self.refresh,
                options,
                name="one",
                stop=self.stop,
            )
        )

    async def refresh(self):
        self.client.policy_version = self.version
        return self.version

    async def take_over(self, trainer=WANTED):
        await self.queue.take_over(trainer, kept="", total=0)

    async def read(self, size):
        found = []
        async with asyncio.timeout(60):
            while len(found) < size:
                found += await self.queue.read(size - len(found))
        return found

    async def settle(self, entries, trainer):
        trained = [Trained(id=e.id, key=e.key, lag=0) for e in entries]
        release = [e.id for e in entries]
        progress = Progress(trainer=trainer, trained=trained, total=0, release=release)
        await self.queue.settle(progress)

    async def end(self):
        self.stop.set()
        async with asyncio.timeout(60):
            return await self.task


async def until(condition):
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.01)


async def test_each_group_is_pushed_complete_with_its_version():
    actor = Plays()
    actor.version = 3
    await actor.take_over(replace(WANTED, version=3))
    entries = await actor.read(3)
    groups = [group_from_bytes(entry.data) for entry in entries]
    for entry, group in zip(entries, groups, strict=True):
        assert group.key == entry.key
        assert group.actor.startswith("one-")
        assert [row.group for row in group.rows] == [group.key] * 2
        assert {int(item.versions.max()) for item in group.rows} == {3}
        assert group.metrics["episodes"] == Total(2)
    assert len({group.key for group in groups}) == 3
    await actor.end()


async def test_no_more_groups_are_played_than_a_trainer_can_use_in_time():
    # Batches of 2 and max_lag 1: four groups, however long nobody trains.
    actor = Plays()
    await actor.take_over()

    async def idle():
        status = await actor.queue.status()
        return status.queued == 4 and [a.running for a in status.actors] == [0]

    await until(idle)
    await asyncio.sleep(0.3)
    assert (await actor.queue.status()).queued == 4
    # A batch was trained on, but the actor's params are still those of before.
    await actor.settle(await actor.read(2), replace(WANTED, version=1))
    await asyncio.sleep(0.3)
    assert (await actor.queue.status()).queued == 2
    actor.version = 1
    await until(idle)
    await actor.end()


async def test_nothing_is_played_before_there_are_a_trainer_and_params():
    actor = Plays()
    actor.version = None
    await asyncio.sleep(0.2)
    await actor.take_over()
    await asyncio.sleep(0.2)
    assert actor.client.requests == []
    actor.version = 0
    assert len(await actor.read(1)) == 1
    await actor.end()


async def test_an_actor_that_is_asked_to_stop_pushes_what_it_plays():
    gate = asyncio.Event()

    class Slow(ScriptedClient):
        async def complete(self, messages, sampling, tools=()):
            await gate.wait()
            return await super().complete(messages, sampling, tools)

    actor = Plays()
    actor.client = Slow(some_number)
    await actor.take_over()

    async def playing():
        return [a.running for a in (await actor.queue.status()).actors] == [2]

    await until(playing)
    actor.stop.set()
    await asyncio.sleep(0.2)
    gate.set()
    summary = await actor.end()
    assert (summary.pushed, summary.returned) == (2, ())
    status = await actor.queue.status()
    assert (status.queued, status.actors) == (2, [])


async def test_an_actor_that_may_wait_no_longer_returns_its_tasks():
    class Never(ScriptedClient):
        async def complete(self, messages, sampling, tools=()):
            await asyncio.Event().wait()

    actor = Plays(options=replace(PAIRS, grace_s=0.1))
    actor.client = Never([])
    await actor.take_over()

    async def playing():
        return [a.running for a in (await actor.queue.status()).actors] == [2]

    await until(playing)
    summary = await actor.end()
    assert summary.pushed == 0
    assert summary.returned == tuple(islice(sums(), 2))


async def test_groups_that_have_become_too_old_are_given_up_and_played_again():
    class StuckAtFirst(ScriptedClient):
        async def complete(self, messages, sampling, tools=()):
            if self.policy_version == 0:
                await asyncio.Event().wait()
            return await super().complete(messages, sampling, tools)

    actor = Plays(tasks=islice(sums(), 2))
    actor.client = StuckAtFirst(some_number)
    await actor.take_over()

    async def playing():
        return [a.running for a in (await actor.queue.status()).actors] == [2]

    await until(playing)
    await actor.settle([], replace(WANTED, version=2))
    actor.version = 2
    groups = [group_from_bytes(entry.data) for entry in await actor.read(2)]
    assert {int(group.rows[0].versions.max()) for group in groups} == {2}
    async with asyncio.timeout(60):
        summary = await actor.task
    assert (summary.pushed, summary.stale, summary.returned) == (2, 2, ())


async def test_a_client_that_fails_for_a_while_costs_time_and_no_task():
    class Flaky(ScriptedClient):
        failures = 0

        async def complete(self, messages, sampling, tools=()):
            if self.failures < 4:
                self.failures += 1
                raise ClientError("no answer")
            return await super().complete(messages, sampling, tools)

    actor = Plays(tasks=islice(sums(), 2))
    actor.client = Flaky(some_number)
    await actor.take_over()
    assert len(await actor.read(2)) == 2
    async with asyncio.timeout(60):
        assert (await actor.task).returned == ()


async def test_a_client_that_never_answers_ends_the_actor_with_its_error():
    def broken(messages, sampling):
        raise ClientError("the server is gone")

    actor = Plays(broken, options=replace(PAIRS, max_failures=1))
    await actor.take_over()
    with pytest.raises(ActorError, match=r"2 groups failed in a row.*the server is gone"):
        async with asyncio.timeout(60):
            await actor.task
    assert (await actor.queue.status()).actors == []


async def test_groups_that_one_outage_ends_are_one_failure():
    class Away(ScriptedClient):
        failed = 0

        async def complete(self, messages, sampling, tools=()):
            if self.failed < 8:
                self.failed += 1
                raise ClientError("no answer")
            return await super().complete(messages, sampling, tools)

    # Four groups of two at once, and one failure in a row is allowed.
    options = replace(PAIRS, concurrency=8, max_failures=1)
    actor = Plays(tasks=islice(sums(), 4), options=options)
    actor.client = Away(some_number)
    await actor.take_over(replace(WANTED, max_lag=3))
    assert len(await actor.read(4)) == 4
    assert (await actor.end()).pushed == 4


class LooksInVain(Plays):
    """An actor whose server is away for the first `away` looks for newer params."""

    away = 2

    async def refresh(self):
        self.looks.append(asyncio.get_running_loop().time())
        if len(self.looks) <= self.away:
            raise ClientError("no server")
        return await super().refresh()


async def test_an_actor_waits_for_a_server_that_is_away_and_asks_it_less_and_less_often():
    actor = LooksInVain(options=replace(PAIRS, max_failures=2))
    actor.looks = []
    await actor.take_over()
    assert len(await actor.read(1)) == 1
    first, second, third = actor.looks[:3]
    assert second - first >= 0.5
    assert third - second >= 1
    await actor.end()


async def test_a_server_that_stays_away_ends_the_actor_with_its_error():
    actor = LooksInVain(options=replace(PAIRS, max_failures=1))
    actor.looks = []
    with pytest.raises(ActorError, match=r"2 refreshes of the params failed in a row.*no server"):
        async with asyncio.timeout(60):
            await actor.task


async def test_a_queue_that_comes_back_finds_the_actor_waiting():
    class Shaky(SQLiteQueue):
        calls = 0

        async def push(self, key, data):
            self.calls += 1
            if self.calls % 2:
                # Half of the lost answers were carried out.
                if self.calls % 4 == 1:
                    await super().push(key, data)
                raise QueueUnavailable("no answer")
            await super().push(key, data)

    actor = Plays(tasks=islice(sums(), 4), queue=Shaky())
    await actor.take_over(replace(WANTED, max_lag=3))
    entries = await actor.read(6)
    # Pushed again under the same key, so that the trainer knows a duplicate.
    assert len({entry.key for entry in entries}) == 4
    async with asyncio.timeout(60):
        assert (await actor.task).pushed == 4


@pytest.mark.parametrize("answers", [0, 1])
async def test_an_actor_that_is_asked_to_stop_does_not_wait_for_a_queue_that_is_away(answers):
    class Gone(SQLiteQueue):
        asked = 0

        async def admit(self, report, wanted):
            self.asked += 1
            if self.asked > answers:
                raise QueueUnavailable("no answer")
            return await super().admit(replace(report, running=0), wanted)

        async def push(self, key, data):
            raise QueueUnavailable("no answer")

    queue = Gone()
    actor = Plays(queue=queue, options=replace(PAIRS, grace_s=0.1))
    await actor.take_over()

    async def asked_in_vain():
        return queue.asked > answers

    await until(asked_in_vain)
    async with asyncio.timeout(30):
        summary = await actor.end()
    # Two groups were asked for; where one answer came, they were begun, and nobody took them.
    assert summary.returned == tuple(islice(sums(), 2))


@pytest.mark.parametrize("script", [some_number, lambda messages, sampling: "no number"])
async def test_a_group_is_pushed_with_its_tokens_and_rewards_whatever_they_teach(script):
    actor = Plays(script, tasks=islice(sums(), 2))
    await actor.take_over()
    for entry, task in zip(await actor.read(2), sums(), strict=False):
        group = group_from_bytes(entry.data)
        assert [trajectory.task for trajectory in group.trajectories] == [task_key(task)] * 2
        assert {trajectory.env_id for trajectory in group.trajectories} == {"ludic/Arithmetic-v0"}
        earned = sum(trajectory.total_reward for trajectory in group.trajectories)
        assert group.metrics["reward"] == Stat(earned, 2)
        assert not any(row.weight.any() for row in group.rows)
    await actor.end()


async def test_an_actor_takes_the_group_size_of_the_trainer():
    actor = Plays(options=replace(PAIRS, group_size=None))
    await actor.take_over(replace(WANTED, group_size=3))
    groups = [group_from_bytes(entry.data) for entry in await actor.read(2)]
    assert [len(group.trajectories) for group in groups] == [3, 3]
    await actor.end()


@pytest.mark.parametrize(
    ("own", "of_the_trainer"), [(2, 3), (4, 2), pytest.param(None, 5, id="more than fit")]
)
async def test_an_actor_of_another_group_size_than_the_trainers_ends(own, of_the_trainer):
    actor = Plays(options=replace(PAIRS, group_size=own))
    await actor.take_over(replace(WANTED, group_size=of_the_trainer))
    said = rf"groups of {of_the_trainer}, .*group_size={own}, concurrency=4"
    with pytest.raises(ActorError, match=said):
        async with asyncio.timeout(60):
            await actor.task
    assert actor.client.requests == []
    assert (await actor.queue.status()).actors == []


async def test_an_actor_whose_tasks_are_all_retired_reports_on_and_can_be_stopped():
    solved = list(islice(sums(), 3))
    actor = Plays(tasks=cycle(solved))
    await actor.take_over()
    await actor.read(1)
    retired = [task_key(task) for task in solved]
    await actor.queue.settle(Progress(trainer=WANTED, retired=retired))

    async def informed():
        return [a.retired for a in (await actor.queue.status()).actors] == [3]

    await until(informed)
    await actor.settle(await actor.read(1), replace(WANTED, version=1))
    actor.version = 1
    pushed = (await actor.end()).pushed
    assert pushed < 8


def test_an_actor_that_cannot_play_one_group_is_refused():
    with pytest.raises(ConfigError, match="concurrency=4 with group_size=8"):
        ActorOptions(concurrency=4, group_size=8)
