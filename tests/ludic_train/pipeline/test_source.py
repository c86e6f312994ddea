"""What the trainer's end of a queue gives, refuses, counts and goes on from."""

import asyncio
import pickle
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from ludic_gym.errors import ConfigError
from ludic_train.errors import EmptyBatch, QueueError, Superseded
from ludic_train.metrics import Peak, Stat, Total
from ludic_train.pipeline import reader as feed
from ludic_train.pipeline.codec import group_to_bytes
from ludic_train.pipeline.group import SAWGroup
from ludic_train.pipeline.queues.base import ActorReport, Admission, TrainerReport
from ludic_train.pipeline.queues.sqlite import SQLiteQueue
from ludic_train.pipeline.source import PipelineBatchSource
from ludic_train.sources.base import DurableSource
from ludic_train.sources.teacher import TaughtBatchSource
from ludic_train.trainer.config import TrainerConfig
from ludic_train.types import SAWItem

LAG_2 = TrainerConfig(max_lag=2)


def group(key, *, version=0, rows=2, token=5, metrics=None):
    """A group of rows of two tokens, the last of which `version` sampled."""
    row = SAWItem(
        input_ids=np.array([token, token], np.int32),
        action_mask=np.array([False, True]),
        weight=np.array([0, 1], np.float32),
        behavior_logprobs=np.array([0, -1], np.float32),
        versions=None if version is None else np.array([-1, version], np.int32),
        group=key,
    )
    return SAWGroup(key=key, items=(row,) * rows, metrics=metrics or {})


async def push(queue, *groups):
    for each in groups:
        await queue.push(each.key, group_to_bytes(each))


def names(batch):
    return list(dict.fromkeys(item.group for item in batch.items))


@pytest.fixture
async def path(tmp_path):
    return tmp_path / "queue.sqlite3"


@pytest.fixture
async def opened(path):
    """Makes sources of one queue, as a trainer that is started again would."""
    made = []

    def source(**options):
        options = {"groups_per_batch": 2, "cfg": LAG_2, **options}
        made.append(PipelineBatchSource(SQLiteQueue(path), **options))
        return made[-1]

    yield source
    for each in made:
        await each.aclose()


@pytest.fixture
async def queue(path):
    queue = SQLiteQueue(path)
    yield queue
    await queue.aclose()


async def test_a_batch_is_the_rows_of_the_oldest_groups(opened, queue):
    await push(queue, group("a"), group("b", rows=3), group("c"))
    source = opened()
    await source.trained(0)
    batch = await source.next_batch()
    assert [item.group for item in batch.items] == ["a", "a", "b", "b", "b"]


async def test_groups_wait_in_the_queue_until_updates_were_made_from_them(opened, queue):
    await push(queue, group("a"), group("b"), group("c"), group("d"))
    source = opened(hold=0)
    await source.trained(0)
    await source.next_batch()
    assert (await queue.status()).queued == 4
    await source.trained(1)
    status = await queue.status()
    assert (status.queued, status.held, status.counts) == (2, 0, {"trained": 2})
    assert status.trainer.version == 1


async def test_a_killed_trainer_leaves_its_groups_to_the_next(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened()
    await killed.trained(0)
    assert names(await killed.next_batch()) == ["a", "b"]
    await killed.trained(1)
    assert names(await killed.next_batch()) == ["c", "d"]
    following = opened()
    await following.trained(0)
    assert names(await following.next_batch()) == ["a", "b"]
    with pytest.raises(Superseded):
        await killed.trained(2)


async def test_a_resumed_trainer_goes_on_after_its_checkpoint(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened()
    await killed.trained(0)
    await killed.next_batch()
    await killed.trained(1)
    checkpoint = killed.state_dict()
    await killed.next_batch()
    await killed.trained(2)
    resumed = opened()
    resumed.load_state_dict(checkpoint)
    await resumed.trained(1)
    assert names(await resumed.next_batch()) == ["c", "d"]
    assert names(await resumed.next_batch()) == ["e", "f"]
    assert (await queue.status()).counts["trained"] == 2


async def test_groups_are_released_when_the_checkpoint_after_theirs_begins(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    source = opened()
    await source.trained(0)
    held = []
    for version in (1, 2, 3):
        await source.next_batch()
        await source.trained(version)
        held.append((await queue.status()).held)
        source.state_dict()
    # The state of version 1 is known to be on disk when that of version 2 is asked for.
    assert held == [2, 4, 4]


async def test_what_was_released_before_a_checkpoint_is_counted_as_lost(opened, queue, caplog):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened(hold=1)
    await killed.trained(0)
    for version in (1, 2):
        await killed.next_batch()
        await killed.trained(version)
    anew = opened(hold=1)
    await anew.trained(0)
    # a, b and c are gone, d was held.
    batch = await anew.next_batch()
    assert names(batch) == ["d", "e"]
    assert batch.metrics["groups/lost"] == Total(3)
    assert "3 groups were trained on after the state" in caplog.text


async def test_groups_that_would_be_too_old_are_dropped_whole_and_counted(opened, queue):
    # Two updates are made from a batch; at version 6 the last is made at 7, and 7 - 5 <= 2.
    cfg = TrainerConfig(max_lag=2, minibatches=2)
    mixed = replace(group("half-old"), items=(*group("x", version=6).items, *group("y").items))
    fresh = [group("a", version=5), group("b", version=6)]
    await push(queue, group("old", version=4), mixed, *fresh)
    source = opened(cfg=cfg)
    await source.trained(6)
    batch = await source.next_batch()
    assert names(batch) == ["a", "b"]
    assert batch.metrics["groups/stale"] == Total(2)
    assert (batch.metrics["lag"], batch.metrics["lag/max"]) == (Stat(3, 2), Peak(2))
    await source.trained(8)
    status = await queue.status()
    assert (status.counts["stale"], status.lags) == (2, {1: 1, 2: 1})


async def test_a_group_that_is_fresh_when_read_but_not_when_asked_for_is_dropped(opened, queue):
    await push(queue, *(group(key, version=0) for key in "abcd"))
    source = opened()
    await source.trained(0)
    await source.next_batch()
    await source.trained(3)
    await push(queue, group("e", version=3), group("f", version=3))
    assert names(await source.next_batch()) == ["e", "f"]


async def test_a_group_pushed_twice_is_trained_on_once(opened, queue):
    await push(queue, group("a"), group("a"), group("b"))
    source = opened()
    await source.trained(0)
    batch = await source.next_batch()
    assert names(batch) == ["a", "b"]
    assert batch.metrics["groups/duplicate"] == Total(1)
    await source.trained(1)
    source.state_dict()
    resumed = opened()
    resumed.load_state_dict(source.state_dict())
    await push(queue, group("b"), group("c"), group("d"))
    await resumed.trained(1)
    assert names(await resumed.next_batch()) == ["c", "d"]


async def test_a_group_without_rows_counts_in_its_batch(opened, queue):
    await push(queue, group("a"), group("none", rows=0), group("b"), group("c"))
    source = opened()
    await source.trained(0)
    first = await source.next_batch()
    assert (names(first), first.metrics["groups"]) == (["a"], Total(2))
    await source.trained(1)
    assert names(await source.next_batch()) == ["b", "c"]


async def test_batches_without_rows_are_passed_over_and_make_room_for_others(opened, queue):
    # One batch may wait at a time.
    trainer = TrainerReport(version=0, groups_per_batch=2, max_lag=0)
    source = opened(max_lag=0)
    await source.trained(0)
    await push(queue, group("x", rows=0), group("y", rows=0))
    waiting = asyncio.create_task(source.next_batch())

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
    nothing = [group(f"n{i}", rows=0) for i in range(2)]
    await push(queue, group("a"), group("b"), *nothing, group("c"), group("d"))
    first = opened()
    await first.trained(0)
    await first.next_batch()
    await first.trained(1)
    saved = first.state_dict()
    assert names(await first.next_batch()) == ["c", "d"]
    await first.aclose()
    second = opened()
    second.load_state_dict(saved)
    await second.trained(1)
    batch = await second.next_batch()
    assert (names(batch), batch.metrics["groups"]) == (["c", "d"], Total(4))


async def test_what_is_passed_over_does_not_count_before_what_came_earlier(opened, queue):
    nothing = [group(f"n{i}", rows=0) for i in range(2)]
    await push(queue, group("a"), group("b"), *nothing, group("c"), group("d"))
    source = opened()
    await source.trained(0)
    await source.next_batch()
    # Asked for before the first batch is in the params.
    assert names(await source.next_batch()) == ["c", "d"]
    assert source.state_dict() == {"cursor": "", "trained": 0}
    await source.trained(1)
    assert source.state_dict()["trained"] == 6


async def test_where_nothing_teaches_any_more_training_ends(opened, queue):
    await push(queue, *(group(f"{i}", rows=0) for i in range(40)))
    source = opened()
    await source.trained(0)
    with pytest.raises(EmptyBatch, match="20 batches of 2 groups without a row"):
        await source.next_batch()
    assert (await queue.status()).queued == 0


async def test_poison_goes_to_the_dead_letters_with_its_reason(opened, queue):
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit('the pickle was run')",))

    good = group_to_bytes(group("cut"))
    await queue.push("bomb", pickle.dumps(Bomb()))
    await queue.push("cut", good[:-1])
    await queue.push("schema", good[:4] + b"\x63" + good[5:])
    await queue.push("huge", bytes(70 * 2**20))
    await queue.push("liar", good)
    await queue.push("vocabulary", group_to_bytes(group("vocabulary", token=300)))
    await queue.push("ageless", group_to_bytes(group("ageless", version=None)))
    await push(queue, group("cut"), group("liar"))
    source = opened(vocab_size=300)
    await source.trained(0)
    batch = await source.next_batch()
    # What a liar says does not keep the honest one of that name away.
    assert names(batch) == ["cut", "liar"]
    assert batch.metrics["groups/dead"] == Total(7)
    reasons = {letter.key: letter.reason for letter in await queue.dead_letters()}
    for key, said in {
        "bomb": "not a group",
        "cut": "truncated or damaged",
        "schema": "schema 99; this version reads 2",
        "huge": "not a group",
        "liar": "says its key is 'cut'",
        "vocabulary": "a token id is 300; the model has 300",
        "ageless": "do not say which version",
    }.items():
        assert said in reasons[key]


async def test_a_group_that_trainers_die_of_is_buried(opened, queue):
    await push(queue, group("deadly"))
    for _ in range(2):
        source = opened(groups_per_batch=1, max_attempts=2)
        await source.trained(0)
        assert names(await source.next_batch()) == ["deadly"]
    await push(queue, group("next"))
    source = opened(groups_per_batch=1, max_attempts=2)
    await source.trained(0)
    assert names(await source.next_batch()) == ["next"]
    (letter,) = await queue.dead_letters()
    assert (letter.key, letter.reason) == ("deadly", "2 trainers died with it in their batch")


async def test_groups_are_filtered_whole(opened, queue):
    await push(queue, group("a"), group("b", rows=5), group("c"))
    source = opened(keep=lambda group: len(group.items) < 5)
    await source.trained(0)
    batch = await source.next_batch()
    assert names(batch) == ["a", "c"]
    assert batch.metrics["groups/filtered"] == Total(1)


async def test_the_metrics_of_the_groups_add_up(opened, queue):
    earned = {"a": Stat(1, 2), "strange": Total(9), "b": Stat(2, 2)}
    await push(queue, *(group(key, metrics={"reward": stat}) for key, stat in earned.items()))
    source = opened()
    await source.trained(0)
    assert (await source.next_batch()).metrics["reward"] == Stat(3, 4)
    (letter,) = await queue.dead_letters()
    assert letter.reason == "its metric 'reward' is a Total, elsewhere Stat"


async def test_a_cancelled_wait_for_a_batch_skips_no_group(opened, queue):
    await push(queue, group("a"))
    source = opened()
    await source.trained(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.next_batch(), 0.5)
    await push(queue, group("b"), group("c"))
    assert names(await source.next_batch()) == ["a", "b"]


async def test_a_batch_that_came_when_nobody_waited_any_more_is_the_next(opened, queue):
    await push(queue, *(group(key) for key in "abcd"))
    source = opened()
    await source.trained(0)
    waiting = asyncio.ensure_future(source.next_batch())
    await asyncio.sleep(0)
    # While this loop computes, the batch becomes ready; its waiter is cancelled before it looks.
    while not source._coming.done():
        time.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await source.trained(0)
    assert (await queue.status()).held == 0
    assert names(await source.next_batch()) == ["a", "b"]
    assert names(await source.next_batch()) == ["c", "d"]


async def test_all_batches_that_were_given_are_trained_on_when_the_word_comes(opened, queue):
    await push(queue, *(group(key) for key in "abcd"))
    source = opened()
    await source.trained(0)
    await source.next_batch()
    await source.next_batch()
    await source.trained(1)
    assert (await queue.status()).counts == {"trained": 4}
    assert source.state_dict()["trained"] == 4


class SlowToSettle(SQLiteQueue):
    """Settles when `may_settle` is set."""

    def __init__(self, path):
        super().__init__(path)
        self.may_settle = threading.Event()

    async def settle(self, progress):
        while not self.may_settle.is_set():
            await asyncio.sleep(0.01)
        await super().settle(progress)


async def test_what_a_cancelled_call_did_not_tell_the_queue_the_next_one_does(path, queue):
    await push(queue, *(group(key) for key in "abcd"))
    slow = SlowToSettle(path)
    source = PipelineBatchSource(slow, groups_per_batch=2, cfg=LAG_2, hold=0)
    await source.trained(0)
    await source.next_batch()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.trained(1), 0.2)
    assert (await queue.status()).queued == 4
    slow.may_settle.set()
    await source.trained(1)
    status = await queue.status()
    assert (status.queued, status.counts, status.lags) == (2, {"trained": 2}, {0: 2})
    await source.aclose()


async def test_a_queue_that_forgot_its_reader_is_read_on_where_it_was(opened, queue, caplog):
    await push(queue, *(group(key) for key in "abcdef"))
    source, seen = opened(), []
    await source.trained(0)
    for version in range(4):
        seen += names(await source.next_batch())
        if version == 1:
            queue._db.execute("DELETE FROM state")
            await push(queue, group("g"), group("h"))
        await source.trained(0)
    assert seen == list("abcdefgh")
    status = await queue.status()
    assert (status.queued, status.held, status.counts) == (0, 8, {"trained": 8})
    assert caplog.text.count("taking the queue over again") == 1


async def test_a_duplicate_never_replaces_the_group_that_it_repeats(opened, queue):
    await push(queue, group("a"), group("a"), group("b"))
    killed = opened()
    await killed.trained(0)
    assert names(await killed.next_batch()) == ["a", "b"]
    following = opened()
    await following.trained(0)
    assert names(await following.next_batch()) == ["a", "b"]


async def test_a_resumed_run_may_have_other_batches(opened, queue):
    await push(queue, *(group(key) for key in "abcdefg"))
    killed = opened()
    await killed.trained(0)
    await killed.next_batch()
    await killed.trained(1)
    resumed = opened(groups_per_batch=3, cfg=TrainerConfig(max_lag=4, minibatches=3))
    resumed.load_state_dict(killed.state_dict())
    await resumed.trained(1)
    assert names(await resumed.next_batch()) == ["c", "d", "e"]
    await resumed.trained(4)
    status = await queue.status()
    assert (status.held, status.counts) == (3, {"trained": 5})
    # At version 1, the last of three updates is made at 3.
    assert status.lags == {0: 2, 3: 3}


async def test_only_as_many_keys_are_kept_in_memory_as_the_queue_remembers(
    opened, queue, monkeypatch
):
    monkeypatch.setattr(feed, "REMEMBERED_KEYS", 3)
    source = opened(hold=0)
    await source.trained(0)
    for i in range(0, 20, 2):
        await push(queue, group(f"g{i}"), group(f"g{i + 1}"))
        await source.next_batch()
        await source.trained(0)
    assert list(source._feed._owners) == ["g17", "g18", "g19"]
    assert source._feed._untold == source._feed._leaving == []
    assert not source._feed._known


async def test_what_a_stranger_wrote_is_quoted_in_short(opened, queue, caplog):
    await queue.push("k" * 10_000, group_to_bytes(group("short")))
    await push(queue, group("a"), group("b"))
    source = opened()
    await source.trained(0)
    await source.next_batch()
    assert len(caplog.text) < 2_000
    assert "(10000 characters)" in caplog.text


async def test_a_beginning_that_failed_is_not_taken_for_one(opened):
    source = opened()
    source.load_state_dict({"cursor": "1700-0", "trained": 3})
    for _ in range(2):
        with pytest.raises(QueueError, match="none of a file"):
            await source.trained(3)
    with pytest.raises(ConfigError, match="call trained"):
        await source.next_batch()


async def test_a_source_may_be_closed_twice(opened):
    source = opened()
    await source.trained(0)
    await source.aclose()
    await source.aclose()


async def test_a_filter_that_fails_stops_training_instead_of_the_reader_alone(opened, queue):
    await push(queue, group("a"))
    source = opened(keep=lambda group: group.size)
    await source.trained(0)
    for _ in range(2):
        with pytest.raises(AttributeError, match="size"):
            await source.next_batch()


async def test_a_source_that_learns_from_a_teacher_passes_the_news_on(opened):
    inner = opened()
    taught = TaughtBatchSource(inner, teacher=None)
    assert isinstance(taught, DurableSource)
    await taught.trained(3)
    assert (await inner.status()).trainer.version == 3


@pytest.mark.parametrize(
    ("cfg", "max_lag", "needed"),
    [
        (TrainerConfig(minibatches=4), 2, 3),
        (TrainerConfig(publish_every=3), 1, 2),
        (TrainerConfig(minibatches=2, epochs=2, publish_every=3), 4, 5),
    ],
)
def test_a_lag_that_training_can_never_keep_is_refused(opened, cfg, max_lag, needed):
    with pytest.raises(ConfigError, match=f"set max_lag={needed} or more"):
        opened(cfg=cfg, max_lag=max_lag)
    opened(cfg=cfg, max_lag=needed)


@pytest.mark.parametrize("options", [{"groups_per_batch": 0}, {"hold": -1}, {"max_attempts": 0}])
def test_numbers_that_make_no_sense_are_refused(opened, options):
    ((name, value),) = options.items()
    with pytest.raises(ConfigError, match=f"{name} must be at least .*, got {value}"):
        opened(**options)


async def test_a_batch_without_a_beginning_is_refused(opened):
    with pytest.raises(ConfigError, match="call trained"):
        await opened().next_batch()


async def test_a_state_that_comes_too_late_is_refused(opened):
    source = opened()
    await source.trained(0)
    with pytest.raises(ConfigError, match="read already"):
        source.load_state_dict({"cursor": "", "trained": 0})
