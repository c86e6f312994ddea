"""Groups without rows or without a gradient: count, replacement and the end of training."""

import asyncio
from dataclasses import replace

import pytest
from queued_groups import ALGO, begin, group, names, push

from ludic_train.algorithms.presets import grpo, reinforce_baseline, sft
from ludic_train.cluster.queues.base import ActorReport, Admission, TrainerReport
from ludic_train.errors import EmptyBatch
from ludic_train.metrics import Stat, Total
from ludic_train.sources.base import DurableSource
from ludic_train.sources.levels import Levels, LevelSchedule
from ludic_train.sources.teacher import TaughtBatchSource

FLAT, MIXED = (1.0, 1.0), (0.0, 1.0)


async def test_a_group_without_rows_counts_in_its_batch(opened, queue):
    await push(queue, group("a"), group("none", rewards=()), group("b"), group("c"))
    source = opened()
    await begin(source)
    first = await source.next_batch(ALGO)
    assert (names(first), first.metrics["groups"]) == (["a"], Total(2))
    await source.trained(1)
    assert names(await source.next_batch(ALGO)) == ["b", "c"]


async def test_batches_without_rows_are_passed_over_and_make_room_for_others(opened, queue):
    # One batch may wait at a time.
    trainer = TrainerReport(version=0, groups_per_batch=2, group_size=2, max_lag=0)
    source = opened()
    await begin(source, max_lag=0)
    await push(queue, group("x", rewards=()), group("y", rewards=()))
    waiting = asyncio.create_task(source.next_batch(ALGO))

    async with asyncio.timeout(60):
        while True:
            asked = await queue.admit(ActorReport(name="one", running=0, version=0), wanted=2)
            if asked == Admission(granted=2, trainer=trainer):
                break
            await asyncio.sleep(0.01)
    await push(queue, group("a"), group("b"))
    batch = await waiting
    assert (names(batch), batch.metrics["groups"]) == (["a", "b"], Total(4))
    await source.trained(1)
    assert (await queue.status()).counts["trained"] == 4


async def test_what_was_passed_over_is_passed_over_again_by_a_run_that_goes_on(opened, queue):
    nothing = [group(f"n{i}", rewards=()) for i in range(2)]
    await push(queue, group("a"), group("b"), *nothing, group("c"), group("d"))
    first = opened()
    await begin(first)
    await first.next_batch(ALGO)
    await first.trained(1)
    saved = first.state_dict()
    assert names(await first.next_batch(ALGO)) == ["c", "d"]
    await first.aclose()
    second = opened()
    second.load_state_dict(saved)
    await begin(second, 1)
    batch = await second.next_batch(ALGO)
    assert (names(batch), batch.metrics["groups"]) == (["c", "d"], Total(4))


async def test_what_is_passed_over_does_not_count_before_what_came_earlier(opened, queue):
    nothing = [group(f"n{i}", rewards=()) for i in range(2)]
    await push(queue, group("a"), group("b"), *nothing, group("c"), group("d"))
    source = opened()
    await begin(source)
    await source.next_batch(ALGO)
    # Asked for before the first batch is in the params.
    assert names(await source.next_batch(ALGO)) == ["c", "d"]
    assert (source.state_dict()["cursor"], source.state_dict()["trained"]) == ("", 0)
    await source.trained(1)
    assert source.state_dict()["trained"] == 6


async def test_where_nothing_teaches_any_more_training_ends(opened, queue):
    await push(queue, *(group(f"{i}", rewards=()) for i in range(40)))
    source = opened()
    await begin(source)
    with pytest.raises(EmptyBatch, match="20 batches of 2 groups left 0 groups"):
        await source.next_batch(ALGO)
    assert (await queue.status()).queued == 0


async def test_batches_that_are_passed_over_lower_the_level_for_the_actors(opened, queue):
    failed = [
        replace(each, trajectories=tuple(replace(t, env_key="hard") for t in each.trajectories))
        for each in (group(f"n{i}", rewards=FLAT) for i in range(2))
    ]
    schedule = LevelSchedule(levels={"x/X-v0": [{}, {"hard": True}]}, window=2)
    levels = Levels(schedule, {"hard": ("x/X-v0", 1)})
    levels.current["x/X-v0"] = 1
    await push(queue, *failed)
    source = opened(levels=levels)
    await begin(source)
    waiting = asyncio.create_task(source.next_batch(grpo()))
    async with asyncio.timeout(60):
        while (await queue.status()).trainer.levels != '{"x/X-v0": 0}':
            await asyncio.sleep(0.01)
    await push(queue, group("a", rewards=MIXED), group("b", rewards=MIXED))
    batch = await waiting
    assert batch.metrics["level"] == Stat(0, 1)
    assert batch.metrics["success/level_1"] == Stat(0, 4)


async def test_groups_that_teach_nothing_count_in_their_batch(opened, queue):
    earned = {"a": MIXED, "flat": FLAT, "b": MIXED, "c": MIXED}
    await push(queue, *(group(key, rewards=rewards) for key, rewards in earned.items()))
    source = opened()
    await begin(source)
    batch = await source.next_batch(grpo())
    assert names(batch) == ["a"]
    assert (batch.metrics["groups"], batch.metrics["rollouts/kept"]) == (Total(2), Stat(2, 4))
    assert batch.metrics["groups/filtered"] == Total(0)
    await source.trained(1)
    assert (await queue.status()).counts == {"trained": 2}
    assert names(await source.next_batch(grpo())) == ["b", "c"]


async def test_groups_that_teach_nothing_are_replaced_where_the_algorithm_says_so(opened, queue):
    earned = {"a": MIXED, "flat": FLAT, "b": MIXED, "c": MIXED}
    await push(queue, *(group(key, rewards=rewards) for key, rewards in earned.items()))
    source = opened()
    await begin(source)
    # As DAPO does.
    batch = await source.next_batch(grpo(full_batches=True))
    assert names(batch) == ["a", "b"]
    assert (batch.metrics["groups"], batch.metrics["rollouts/kept"]) == (Total(3), Stat(4, 6))
    await source.trained(1)
    assert (await queue.status()).counts == {"trained": 2, "filtered": 1}


async def test_credit_sees_the_whole_batch(opened, queue):
    # Less the mean of the other three: of 1, 2 and 5, of 0, 2 and 5, and so on.
    await push(queue, group("a", rewards=(0.0, 1.0)), group("b", rewards=(2.0, 5.0)))
    source = opened()
    await begin(source)
    batch = await source.next_batch(reinforce_baseline())
    by_hand = [0 - 8 / 3, 1 - 7 / 3, 2 - 6 / 3, 5 - 3 / 3]
    assert [float(item.weight[1]) for item in batch.items] == pytest.approx(by_hand)


async def test_the_metrics_of_the_groups_add_up(opened, queue):
    earned = {"a": Stat(1, 2), "strange": Total(9), "b": Stat(2, 2)}
    await push(queue, *(group(key, metrics={"reward": stat}) for key, stat in earned.items()))
    source = opened()
    await begin(source)
    assert (await source.next_batch(ALGO)).metrics["reward"] == Stat(3, 4)
    (letter,) = await queue.dead_letters()
    assert letter.reason == "its metric 'reward' is a Total, elsewhere Stat"


async def test_a_filter_that_fails_stops_training_instead_of_the_reader_alone(opened, queue):
    await push(queue, group("a"), group("b"))
    source = opened()
    await begin(source)
    with pytest.raises(AttributeError, match="size"):
        await source.next_batch(sft(filter=lambda trajectories: trajectories.size))


async def test_a_source_that_learns_from_a_teacher_passes_the_news_on(opened):
    inner = opened()
    taught = TaughtBatchSource(inner, teacher=None)
    assert isinstance(taught, DurableSource)
    await begin(taught, 3)
    assert (await inner.status()).trainer.version == 3
    await taught.trained(4)
    assert (await inner.status()).trainer.version == 4
