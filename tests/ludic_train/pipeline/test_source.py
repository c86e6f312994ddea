"""What the trainer's end of a queue gives, refuses, counts and goes on from."""

import asyncio
import pickle
import threading
import time
from dataclasses import replace

import pytest
from trajectories import call, rollout

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.presets import grpo, reinforce_baseline, rejection_sampling, sft
from ludic_train.errors import CheckpointError, EmptyBatch, QueueError, Superseded
from ludic_train.metrics import Peak, Stat, Total
from ludic_train.pipeline import reader
from ludic_train.pipeline.codec import RolloutGroup, group_to_bytes
from ludic_train.pipeline.queues.base import ActorReport, Admission, TrainerReport
from ludic_train.pipeline.queues.sqlite import SQLiteQueue
from ludic_train.pipeline.source import PipelineBatchSource
from ludic_train.rows import trajectory_from
from ludic_train.sources.base import DurableSource, Pace, TaskHistory
from ludic_train.sources.teacher import TaughtBatchSource
from ludic_train.trainer.config import TrainerConfig

ALGO = sft()
NEW = TaskHistory().state_dict()


def group(key, *, version=0, rewards=(0.0, 1.0), token=5, metrics=None, task=""):
    """A group of a rollout per reward, each a row of two tokens, the last sampled by `version`."""
    made = [
        trajectory_from(rollout((call([token], [token], version=version),), rewards=[reward]))
        for reward in rewards
    ]
    known = tuple(replace(one, group=key, task=task or key) for one in made)
    return RolloutGroup(key=key, trajectories=known, metrics=metrics or {})


async def begin(source, version=0, *, max_lag=2, updates=1):
    """Begin as a trainer of `updates` per batch does that has made `version` of them."""
    pace = Pace(version=version, updates_per_batch=updates, oldest_lag=updates - 1, max_lag=max_lag)
    await source.begin(pace)


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
        options = {"groups_per_batch": 2, "group_size": 2, **options}
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
    await push(queue, group("a"), group("b", rewards=(0.0, 1.0, 2.0)), group("c"))
    source = opened()
    await begin(source)
    batch = await source.next_batch(ALGO)
    assert [item.group for item in batch.items] == ["a", "a", "b", "b", "b"]


async def test_groups_wait_in_the_queue_until_updates_were_made_from_them(opened, queue):
    await push(queue, group("a"), group("b"), group("c"), group("d"))
    source = opened(hold=0)
    await begin(source)
    await source.next_batch(ALGO)
    assert (await queue.status()).queued == 4
    await source.trained(1)
    status = await queue.status()
    assert (status.queued, status.held, status.counts) == (2, 0, {"trained": 2})
    assert status.trainer.version == 1


async def test_a_killed_trainer_leaves_its_groups_to_the_next(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened()
    await begin(killed)
    assert names(await killed.next_batch(ALGO)) == ["a", "b"]
    await killed.trained(1)
    assert names(await killed.next_batch(ALGO)) == ["c", "d"]
    following = opened()
    await begin(following)
    assert names(await following.next_batch(ALGO)) == ["a", "b"]
    with pytest.raises(Superseded):
        await killed.trained(2)


async def test_a_resumed_trainer_goes_on_after_its_checkpoint(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened()
    await begin(killed)
    await killed.next_batch(ALGO)
    await killed.trained(1)
    checkpoint = killed.state_dict()
    await killed.next_batch(ALGO)
    await killed.trained(2)
    resumed = opened()
    resumed.load_state_dict(checkpoint)
    await begin(resumed, 1)
    assert names(await resumed.next_batch(ALGO)) == ["c", "d"]
    assert names(await resumed.next_batch(ALGO)) == ["e", "f"]
    assert (await queue.status()).counts["trained"] == 2


async def test_groups_are_released_when_the_checkpoint_after_theirs_begins(opened, queue):
    await push(queue, *(group(key) for key in "abcdef"))
    source = opened()
    await begin(source)
    held = []
    for version in (1, 2, 3):
        await source.next_batch(ALGO)
        await source.trained(version)
        held.append((await queue.status()).held)
        source.state_dict()
    # The state of version 1 is known to be on disk when that of version 2 is asked for.
    assert held == [2, 4, 4]


async def test_what_was_released_before_a_checkpoint_is_counted_as_lost(opened, queue, caplog):
    await push(queue, *(group(key) for key in "abcdef"))
    killed = opened(hold=1)
    await begin(killed)
    for version in (1, 2):
        await killed.next_batch(ALGO)
        await killed.trained(version)
    anew = opened(hold=1)
    await begin(anew)
    # a, b and c are gone, d was held.
    batch = await anew.next_batch(ALGO)
    assert names(batch) == ["d", "e"]
    assert batch.metrics["groups/lost"] == Total(3)
    assert "3 groups were trained on after the state" in caplog.text


async def test_groups_that_would_be_too_old_are_dropped_whole_and_counted(opened, queue):
    # Two updates are made from a batch; at version 6 the last is made at 7, and 7 - 5 <= 2.
    parts = group("x", version=6).trajectories, group("y").trajectories
    mixed = replace(group("half-old"), trajectories=(*parts[0], *parts[1]))
    fresh = [group("a", version=5), group("b", version=6)]
    await push(queue, group("old", version=4), mixed, *fresh)
    source = opened()
    await begin(source, 6, updates=2)
    batch = await source.next_batch(ALGO)
    assert names(batch) == ["a", "b"]
    assert batch.metrics["groups/stale"] == Total(2)
    assert (batch.metrics["lag"], batch.metrics["lag/max"]) == (Stat(3, 2), Peak(2))
    await source.trained(8)
    status = await queue.status()
    assert (status.counts["stale"], status.lags) == (2, {1: 1, 2: 1})


async def test_a_group_that_is_fresh_when_read_but_not_when_asked_for_is_dropped(opened, queue):
    await push(queue, *(group(key, version=0) for key in "abcd"))
    source = opened()
    await begin(source)
    await source.next_batch(ALGO)
    await source.trained(3)
    await push(queue, group("e", version=3), group("f", version=3))
    assert names(await source.next_batch(ALGO)) == ["e", "f"]


async def test_a_group_pushed_twice_is_trained_on_once(opened, queue):
    await push(queue, group("a"), group("a"), group("b"))
    source = opened()
    await begin(source)
    batch = await source.next_batch(ALGO)
    assert names(batch) == ["a", "b"]
    assert batch.metrics["groups/duplicate"] == Total(1)
    await source.trained(1)
    source.state_dict()
    resumed = opened()
    resumed.load_state_dict(source.state_dict())
    await push(queue, group("b"), group("c"), group("d"))
    await begin(resumed, 1)
    assert names(await resumed.next_batch(ALGO)) == ["c", "d"]


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
    await begin(source)
    batch = await source.next_batch(ALGO)
    # What a liar says does not keep the honest one of that name away.
    assert names(batch) == ["cut", "liar"]
    assert batch.metrics["groups/dead"] == Total(7)
    reasons = {letter.key: letter.reason for letter in await queue.dead_letters()}
    for key, said in {
        "bomb": "not a group",
        "cut": "truncated or damaged",
        "schema": "schema 99; this version reads 4",
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
        await begin(source)
        assert names(await source.next_batch(ALGO)) == ["deadly"]
    await push(queue, group("next"))
    source = opened(groups_per_batch=1, max_attempts=2)
    await begin(source)
    assert names(await source.next_batch(ALGO)) == ["next"]
    (letter,) = await queue.dead_letters()
    assert (letter.key, letter.reason) == ("deadly", "2 trainers died with it in their batch")


FLAT, MIXED = (1.0, 1.0), (0.0, 1.0)


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


async def test_a_group_of_whole_and_filtered_rollouts_keeps_the_whole_ones(opened, queue):
    await push(queue, group("a", rewards=(0.0, 3.0, 1.0)), group("b", rewards=(-1.0,)))
    source = opened()
    await begin(source)
    batch = await source.next_batch(rejection_sampling(best=2))
    assert (names(batch), len(batch.items)) == (["a"], 2)


async def test_credit_sees_the_whole_batch(opened, queue):
    # Less the mean of all four: 0, 1, 2 and 5 have the mean 2.
    await push(queue, group("a", rewards=(0.0, 1.0)), group("b", rewards=(2.0, 5.0)))
    source = opened()
    await begin(source)
    batch = await source.next_batch(reinforce_baseline())
    assert [float(item.weight[1]) for item in batch.items] == [-2, -1, 0, 3]


async def test_the_metrics_of_the_groups_add_up(opened, queue):
    earned = {"a": Stat(1, 2), "strange": Total(9), "b": Stat(2, 2)}
    await push(queue, *(group(key, metrics={"reward": stat}) for key, stat in earned.items()))
    source = opened()
    await begin(source)
    assert (await source.next_batch(ALGO)).metrics["reward"] == Stat(3, 4)
    (letter,) = await queue.dead_letters()
    assert letter.reason == "its metric 'reward' is a Total, elsewhere Stat"


async def test_a_cancelled_wait_for_a_batch_skips_no_group(opened, queue):
    await push(queue, group("a"))
    source = opened()
    await begin(source)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.next_batch(ALGO), 0.5)
    await push(queue, group("b"), group("c"))
    assert names(await source.next_batch(ALGO)) == ["a", "b"]


async def test_a_batch_that_came_when_nobody_waited_any_more_is_the_next(opened, queue):
    await push(queue, *(group(key) for key in "abcd"))
    source = opened()
    await begin(source)
    waiting = asyncio.ensure_future(source.next_batch(ALGO))
    await asyncio.sleep(0)
    # While this loop computes, the batch becomes ready; its waiter is cancelled before it looks.
    while not source._coming.done():
        time.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await source.trained(0)
    assert (await queue.status()).held == 0
    assert names(await source.next_batch(ALGO)) == ["a", "b"]
    assert names(await source.next_batch(ALGO)) == ["c", "d"]


async def test_all_batches_that_were_given_are_trained_on_when_the_word_comes(opened, queue):
    await push(queue, *(group(key) for key in "abcd"))
    source = opened()
    await begin(source)
    await source.next_batch(ALGO)
    await source.next_batch(ALGO)
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
    source = PipelineBatchSource(slow, groups_per_batch=2, group_size=2, hold=0)
    await begin(source)
    await source.next_batch(ALGO)
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
    await begin(source)
    for version in range(4):
        seen += names(await source.next_batch(ALGO))
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
    await begin(killed)
    assert names(await killed.next_batch(ALGO)) == ["a", "b"]
    following = opened()
    await begin(following)
    assert names(await following.next_batch(ALGO)) == ["a", "b"]


async def test_a_resumed_run_may_have_other_batches(opened, queue):
    await push(queue, *(group(key) for key in "abcdefg"))
    killed = opened()
    await begin(killed)
    await killed.next_batch(ALGO)
    await killed.trained(1)
    resumed = opened(groups_per_batch=3)
    resumed.load_state_dict(killed.state_dict())
    await begin(resumed, 1, max_lag=4, updates=3)
    assert names(await resumed.next_batch(ALGO)) == ["c", "d", "e"]
    await resumed.trained(4)
    status = await queue.status()
    assert (status.held, status.counts) == (3, {"trained": 5})
    # At version 1, the last of three updates is made at 3.
    assert status.lags == {0: 2, 3: 3}


async def test_only_as_many_keys_are_kept_in_memory_as_the_queue_remembers(
    opened, queue, monkeypatch
):
    monkeypatch.setattr(reader, "REMEMBERED_KEYS", 3)
    source = opened(hold=0)
    await begin(source)
    for i in range(0, 20, 2):
        await push(queue, group(f"g{i}"), group(f"g{i + 1}"))
        await source.next_batch(ALGO)
        await source.trained(0)
    assert list(source._reader._owners) == ["g17", "g18", "g19"]
    assert source._reader._unsent == source._reader._leaving == []
    assert not source._reader._known


async def test_what_a_stranger_wrote_is_quoted_in_short(opened, queue, caplog):
    await queue.push("k" * 10_000, group_to_bytes(group("short")))
    await push(queue, group("a"), group("b"))
    source = opened()
    await begin(source)
    await source.next_batch(ALGO)
    assert len(caplog.text) < 2_000
    assert "(10000 characters)" in caplog.text


async def test_a_beginning_that_failed_is_not_taken_for_one(opened):
    source = opened()
    source.load_state_dict({"cursor": "1700-0", "trained": 3, "history": NEW})
    for _ in range(2):
        with pytest.raises(QueueError, match="none of a file"):
            await begin(source, 3)
    with pytest.raises(ConfigError, match="call begin"):
        await source.next_batch(ALGO)


async def test_a_source_may_be_closed_twice(opened):
    source = opened()
    await begin(source)
    await source.aclose()
    await source.aclose()


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


@pytest.mark.parametrize(
    ("cfg", "max_lag"),
    [
        (TrainerConfig(minibatches=4), 2),
        (TrainerConfig(publish_every=3), 1),
        (TrainerConfig(minibatches=2, epochs=2, publish_every=3), 4),
    ],
)
async def test_a_lag_that_training_can_never_keep_is_refused(opened, cfg, max_lag):
    pace = Pace(
        version=0,
        updates_per_batch=cfg.updates_per_batch,
        oldest_lag=cfg.oldest_lag,
        max_lag=max_lag,
    )
    with pytest.raises(ConfigError, match=f"set max_lag={max_lag + 1} or more"):
        await opened().begin(pace)
    await opened().begin(replace(pace, max_lag=max_lag + 1))


async def test_actors_are_told_of_the_trainers_pace_and_group_size(opened, queue):
    source = opened(groups_per_batch=4, group_size=8)
    await begin(source, 7, max_lag=5, updates=3)
    told = await queue.admit(ActorReport(name="one", running=0, version=7), wanted=1)
    assert told.trainer == TrainerReport(
        version=7, groups_per_batch=4, group_size=8, updates_per_batch=3, max_lag=5
    )


@pytest.mark.parametrize(
    "options", [{"groups_per_batch": 0}, {"group_size": 0}, {"hold": -1}, {"max_attempts": 0}]
)
def test_numbers_that_make_no_sense_are_refused(opened, options):
    ((name, value),) = options.items()
    with pytest.raises(ConfigError, match=f"{name}={value}.* at least"):
        opened(**options)


async def test_a_batch_without_a_beginning_is_refused(opened):
    with pytest.raises(ConfigError, match="call begin"):
        await opened().next_batch(ALGO)


async def test_a_state_that_comes_too_late_is_refused(opened):
    source = opened()
    await begin(source)
    with pytest.raises(ConfigError, match="read already"):
        source.load_state_dict({"cursor": "", "trained": 0, "history": NEW})


async def test_a_run_that_played_by_itself_is_not_resumed_from_a_queue(opened):
    with pytest.raises(CheckpointError, match=r"\['history', 'taken'\]: .* not learn from a queue"):
        opened().load_state_dict({"taken": 3, "history": NEW})
