"""Completions that are interrupted and continued, by a model whose tokens are its positions."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from ludic_gym.errors import ClientError
from ludic_gym.prompts import ExactPrompts
from ludic_gym.sampling import packed_masks, unpacked_masks
from ludic_gym.types import Completion, Sampling, Task
from ludic_train.cluster.partial_rollouts import (
    PLAYED,
    PartialGroup,
    ResumableClient,
    partial_group_from_bytes,
    partial_group_to_bytes,
)
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
    PLAYED.set(begun)
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
    PLAYED.set(begun)
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
        PLAYED.set(begun)
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
