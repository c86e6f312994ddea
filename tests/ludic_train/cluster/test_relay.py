"""Groups between the actors of a run, through a real Redis."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest
from redis_server import needs_redis

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.types import Completion, Sampling, Task
from ludic_train.cluster.actor import ActorOptions, run_pipeline_actor
from ludic_train.cluster.partial_rollouts import (
    PartialCompletion,
    PartialGroup,
    Relay,
    partial_group_to_bytes,
)
from ludic_train.cluster.queues import run_registry
from ludic_train.cluster.queues.base import TrainerReport
from ludic_train.cluster.queues.open_queue import open_registry
from ludic_train.cluster.queues.redis_queue import RedisQueue

pytestmark = needs_redis
TASK = Task(env_id="one", seed=3, sampling=Sampling(seed=4))
keys = count()


def begun(task=TASK, key="k"):
    part = Completion(
        text="a", finish_reason="length", completion_ids=(7,), logprobs=(-1.0,), policy_version=2
    )
    return PartialGroup(task, key, sampled=[PartialCompletion((1,), Sampling(), [part])])


@pytest.fixture
async def roster(redis_server):
    async with open_registry(redis_server.url, f"relay-{next(keys)}") as opened:
        yield opened


async def test_a_group_is_continued_by_one_other_actor(roster):
    one, other = Relay(roster), Relay(roster)
    other.new(TASK)
    assert await one.hand_over(begun())
    # It has had no task yet, and leaves the group to others.
    assert await one.taken() is None
    found = await other.taken()
    assert (found.key, found.task, found.tokens, found.oldest) == ("k", TASK, 1, 2)
    assert await other.taken() is None


async def test_a_group_of_an_environment_that_is_not_ones_own_is_not_played(roster):
    # Whoever writes into the Redis could name any class of this machine.
    one = Relay(roster)
    one.new(TASK)
    for task in (replace(TASK, env_id="os:Evil"), replace(TASK, kwargs={"path": "/"})):
        await roster.hand_over(partial_group_to_bytes(begun(task)))
        assert await one.taken() is None
        # It stays for those whose environment it is.
        assert await roster.take() is not None


async def test_what_is_no_group_is_left_out_with_a_line(roster, caplog):
    one = Relay(roster)
    one.new(TASK)
    await roster.hand_over(b"\x80\x04evil")
    assert await one.taken() is None
    assert "a group that was handed over is left out" in caplog.text
    assert await roster.take() is None


async def test_only_so_many_groups_wait_and_the_oldest_are_forgotten(roster, monkeypatch):
    monkeypatch.setattr(run_registry, "MOST_BEGUN", 2)
    monkeypatch.setattr(run_registry, "LARGEST_BEGUN", 10)
    for data in (b"1", b"2", b"3", b"far too large"):
        await roster.hand_over(data)
    assert [await roster.take() for _ in range(3)] == [b"2", b"3", None]


async def test_nothing_is_handed_over_without_tokens_or_without_a_roster(roster):
    assert not await Relay(roster).hand_over(PartialGroup(TASK))
    assert not await Relay(None).hand_over(begun())
    assert await Relay(None).taken() is None


def test_a_task_without_a_seed_gets_one_so_that_its_group_is_the_same_everywhere():
    relay = Relay(None)
    assert relay.new(replace(TASK, sampling=Sampling())).task.sampling.seed is not None
    assert relay.new(TASK).task == TASK
    assert relay.new(None) is None


async def test_a_group_that_has_become_too_old_is_begun_anew(redis_server):
    key, client = f"relay-{next(keys)}", ScriptedClient(lambda messages, sampling: "5")
    wanted = TrainerReport(version=5, groups_per_batch=1, group_size=2, max_lag=1)
    queue = RedisQueue(redis_server.url, key)
    await queue.take_over(wanted, kept="", total=0)
    arithmetic = replace(TASK, env_id="ludic/Arithmetic-v0")

    async def refresh():
        client.policy_version = 5
        return 5

    async with open_registry(redis_server.url, key) as roster:
        old = begun(arithmetic, key="old")
        old.sampled[0].slices[0] = replace(old.sampled[0].slices[0], policy_version=0)
        await roster.hand_over(partial_group_to_bytes(old))
        async with asyncio.timeout(60):
            summary = await run_pipeline_actor(
                iter([replace(arithmetic, seed=9)]),
                lambda env: ChatPolicy(client, LatestObservation(), system_prompt=""),
                queue,
                refresh,
                ActorOptions(concurrency=2),
                roster=roster,
            )
    assert (summary.pushed, summary.stale) == (2, 1)
    assert all(entry.key != "old" for entry in await queue.read(2))
    await queue.aclose()
