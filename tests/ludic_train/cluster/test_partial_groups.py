"""Groups that are interrupted: continued by the same actor, and by another one through a Redis."""

import asyncio
import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.errors import ClientError
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.prompts import ExactPrompts
from ludic_gym.sampling import packed_masks, unpacked_masks
from ludic_gym.types import Completion, Sampling, Task
from ludic_train.cluster.actor import ActorOptions, run_pipeline_actor
from ludic_train.cluster.partial_rollouts import (
    CURRENT_GROUP,
    PartialCompletion,
    PartialGroup,
    Relay,
    ResumableClient,
    partial_group_from_bytes,
    partial_group_to_bytes,
)
from ludic_train.cluster.queues import run_registry
from ludic_train.cluster.queues.base import TrainerReport
from ludic_train.cluster.queues.open_queue import open_registry
from ludic_train.cluster.queues.redis_queue import RedisQueue
from ludic_train.errors import BadGroup

ASK = [{"role": "user", "content": "?"}]
TASK = Task(env_id="x", seed=1, sampling=Sampling(seed=1))
LONG = Sampling(max_tokens=10, seed=5)


def render(messages, reply_comes):
    return [100 + len(messages)]


def decode(ids):
    return " ".join(map(str, ids))


class Counter:
    """Continues ids by their number, up to `end`; fails at the request `fails_at`."""

    def __init__(self, end=10**6, fails_at=None, masks=lambda ids: None):
        self.prompts, self.masks = ExactPrompts(render), masks
        self.end, self.fails_at, self.version = end, fails_at, 0
        self.requests = []

    async def continued(self, prompt_ids, sampling):
        self.requests.append((tuple(prompt_ids), sampling))
        if len(self.requests) == self.fails_at:
            raise ClientError("the server is gone")
        first = len(prompt_ids)
        ids = tuple(range(first, min(first + sampling.max_tokens, self.end)))
        stopped = first + sampling.max_tokens >= self.end
        self.version += 1
        return Completion(
            text=decode(ids),
            finish_reason="stop" if stopped else "length",
            sampling=sampling,
            prompt_ids=tuple(prompt_ids),
            completion_ids=ids,
            logprobs=tuple(-float(i) for i in ids),
            policy_version=self.version,
            versions=(self.version,) * len(ids),
            sampling_mask=self.masks(ids),
        )


def client_of(counter):
    return ResumableClient(counter, decode, slice_tokens=4)


async def test_slices_make_one_completion_with_the_version_of_each_token():
    counter = Counter()
    found = await client_of(counter).complete(ASK, LONG)
    assert found.completion_ids == tuple(range(1, 11))
    assert found.prompt_ids == (101,)
    assert found.text == "1 2 3 4 5 6 7 8 9 10"
    assert found.logprobs == tuple(-float(i) for i in range(1, 11))
    # Slices of 4, 4 and 2 tokens, with a push between each.
    assert found.versions == (1,) * 4 + (2,) * 4 + (3,) * 2
    assert (found.policy_version, found.finish_reason, found.sampling) == (1, "length", LONG)
    # No slice draws the numbers of another one.
    assert len({sampling.seed for _, sampling in counter.requests}) == 3


async def test_a_completion_that_ends_by_itself_is_not_continued():
    counter = Counter(end=7)
    found = await client_of(counter).complete(ASK, LONG)
    assert (found.text, found.finish_reason) == ("1 2 3 4 5 6", "stop")
    assert len(counter.requests) == 2


async def test_the_masks_of_slices_are_those_of_one_completion():
    # Each token was drawn from itself and from token 0.
    counter = Counter(masks=lambda ids: packed_masks([[0, i] for i in ids], ids))
    sampling = replace(LONG, top_k=2)
    found = await client_of(counter).complete(ASK, sampling)
    assert [each.max_tokens for _, each in counter.requests] == [4, 4, 2]
    assert all(each.top_k == 2 for _, each in counter.requests)
    sizes, ids = unpacked_masks(found.sampling_mask, np.array(found.completion_ids))
    assert sizes.tolist() == [2] * 10
    assert ids.tolist() == [i for token in range(1, 11) for i in (0, token)]


@pytest.mark.parametrize("change", [{"stop": ("x",)}, {"max_tokens": 4}])
async def test_what_cannot_be_cut_is_sent_whole_and_comes_back_as_it_is(change):
    counter, sampling = Counter(), replace(LONG, **change)
    found = await client_of(counter).complete(ASK, sampling)
    assert counter.requests == [((101,), sampling)]
    assert found == await Counter().continued((101,), sampling)


async def interrupted(counter):
    """A group of one request, which failed in its third slice."""
    begun = PartialGroup(TASK, "key")
    CURRENT_GROUP.set(begun)
    with pytest.raises(ClientError):
        await client_of(counter).complete(ASK, LONG)
    return begun


async def test_an_interrupted_completion_costs_its_last_slice_alone():
    counter = Counter(fails_at=3)
    begun = await interrupted(counter)
    assert (begun.tokens, begun.oldest) == (8, 1)
    begun.again()
    client = client_of(counter)
    found = await client.complete(ASK, LONG)
    assert found.completion_ids == tuple(range(1, 11))
    assert found.versions == (1,) * 4 + (2,) * 4 + (3,) * 2
    assert (client.tokens, client.replayed) == (2, 8)


async def test_another_program_continues_from_the_same_tokens():
    begun = partial_group_from_bytes(partial_group_to_bytes(await interrupted(Counter(fails_at=3))))
    assert (begun.key, begun.task, begun.tokens) == ("key", TASK, 8)
    CURRENT_GROUP.set(begun)
    client = client_of(Counter())
    found = await client.complete(ASK, LONG)
    assert found.completion_ids == tuple(range(1, 11))
    assert found.logprobs == tuple(-float(i) for i in range(1, 11))
    assert (client.tokens, client.replayed) == (2, 8)


async def test_a_request_that_was_not_made_before_is_sampled():
    begun = await interrupted(Counter(fails_at=3))
    begun.again()
    client = client_of(Counter())
    for other in (replace(LONG, seed=6), replace(LONG, max_tokens=9)):
        await client.complete(ASK, other)
    assert client.replayed == 0
    # Each once: a second equal request is another draw.
    await client.complete(ASK, LONG)
    await client.complete(ASK, LONG)
    assert client.replayed == 8


async def test_groups_that_are_played_at_once_do_not_share_completions():
    counter, groups = Counter(), [PartialGroup(TASK), PartialGroup(TASK)]
    client = client_of(counter)

    async def play(begun):
        CURRENT_GROUP.set(begun)
        await asyncio.gather(*(client.complete(ASK, LONG) for _ in range(3)))

    async with asyncio.TaskGroup() as played:
        for begun in groups:
            played.create_task(play(begun))
    assert [len(begun.sampled) for begun in groups] == [3, 3]


def broken(**change):
    def changed(record):
        part = record["sampled"][0]["slices"][0]
        part.update(change)

    return changed


@pytest.mark.parametrize(
    "change",
    [
        broken(completion_ids=[1, 2]),
        broken(completion_ids=["1"] * 4),
        broken(completion_ids=[]),
        broken(logprobs=[float("nan")] * 4),
        broken(versions=[1]),
        broken(versions=["1"] * 4),
        broken(finish_reason="evil"),
        broken(text=5),
        broken(policy_version="1"),
        broken(unknown=1),
        broken(sampling_mask=5),
        # Of three tokens.
        broken(sampling_mask="AAAA"),
        broken(sampling_mask="AAAAAA==", completion_ids=[2**70] * 4),
        lambda record: record.update(schema=0),
        lambda record: record.pop("task"),
        lambda record: record.update(key=5),
        lambda record: record["task"].update(seed="1"),
        lambda record: record["sampled"][0].update(prompt_ids=["a"]),
        lambda record: record["sampled"][0].update(sampling={"max_tokens": "9"}),
    ],
)
async def test_a_group_that_does_not_fit_together_is_refused(change):
    record = json.loads(partial_group_to_bytes(await interrupted(Counter(fails_at=3))))
    change(record)
    with pytest.raises(BadGroup):
        partial_group_from_bytes(json.dumps(record).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"5", b"{}", b"[" * 100_000])
def test_bytes_that_are_no_group_are_refused(data):
    with pytest.raises(BadGroup):
        partial_group_from_bytes(data)


keys = count()


def partial_group(task=TASK, key="k"):
    part = Completion(
        text="a", finish_reason="length", completion_ids=(7,), logprobs=(-1.0,), policy_version=2
    )
    return PartialGroup(task, key, sampled=[PartialCompletion((1,), Sampling(), [part])])


@pytest.fixture
async def registry(redis_server):
    async with open_registry(redis_server.url, f"relay-{next(keys)}") as opened:
        yield opened


async def test_a_group_is_continued_by_one_other_actor(registry):
    one, other = Relay(registry), Relay(registry)
    other.new(TASK)
    assert await one.hand_over(partial_group())
    # It has had no task yet, and leaves the group to others.
    assert await one.take() is None
    found = await other.take()
    assert (found.key, found.task, found.tokens, found.oldest) == ("k", TASK, 1, 2)
    assert await other.take() is None


async def test_a_group_of_an_environment_that_is_not_ones_own_is_not_played(registry):
    # Whoever writes into the Redis could name any class of this machine.
    one = Relay(registry)
    one.new(TASK)
    for task in (replace(TASK, env_id="os:Evil"), replace(TASK, kwargs={"path": "/"})):
        await registry.hand_over(partial_group_to_bytes(partial_group(task)))
        assert await one.take() is None
        # It stays for those whose environment it is.
        assert await registry.take() is not None


async def test_what_is_no_group_is_left_out_with_a_line(registry, caplog):
    one = Relay(registry)
    one.new(TASK)
    await registry.hand_over(b"\x80\x04evil")
    assert await one.take() is None
    assert "a group that was handed over is left out" in caplog.text
    assert await registry.take() is None


async def test_only_so_many_groups_wait_and_the_oldest_are_forgotten(registry, monkeypatch):
    monkeypatch.setattr(run_registry, "MOST_BEGUN", 2)
    monkeypatch.setattr(run_registry, "LARGEST_BEGUN", 10)
    for data in (b"1", b"2", b"3", b"far too large"):
        await registry.hand_over(data)
    assert [await registry.take() for _ in range(3)] == [b"2", b"3", None]


async def test_nothing_is_handed_over_without_tokens_or_without_a_registry(registry):
    assert not await Relay(registry).hand_over(PartialGroup(TASK))
    assert not await Relay(None).hand_over(partial_group())
    assert await Relay(None).take() is None


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

    async with open_registry(redis_server.url, key) as registry:
        old = partial_group(arithmetic, key="old")
        old.sampled[0].slices[0] = replace(old.sampled[0].slices[0], policy_version=0)
        await registry.hand_over(partial_group_to_bytes(old))
        async with asyncio.timeout(60):
            summary = await run_pipeline_actor(
                iter([replace(arithmetic, seed=9)]),
                lambda env: ChatPolicy(client, LatestObservation(), system_prompt=""),
                queue,
                refresh,
                ActorOptions(concurrency=2),
                registry=registry,
            )
    assert (summary.pushed, summary.stale) == (2, 1)
    assert all(entry.key != "old" for entry in await queue.read(2))
    await queue.aclose()
