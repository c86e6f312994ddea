"""Bounds of what an actor may send, and actors that send nothing else."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from codec_messages import message
from queued_groups import ALGO, begin, group, names, push

from ludic_train.cluster import validation
from ludic_train.cluster.codec import group_to_bytes
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.cluster.source import PipelineBatchSource
from ludic_train.cluster.validation import check_metrics, check_rows
from ludic_train.errors import BadGroup
from ludic_train.metrics import Peak, Stat, Total


def rows(**changes):
    """Rows of a group with some fields changed."""
    return [replace(row, **changes) for row in group("g", version=7).rows]


def test_rows_of_an_honest_group_pass():
    check_rows(rows(), version=7)
    # A run that went back meets groups of updates that it will make again.
    check_rows(rows(), version=0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"temperature": 1e-9}, "temperature=1e-09 is not within"),
        ({"temperature": 1e9}, r"temperature=1e\+09 is not within"),
        ({"versions": np.array([-1, 10**9], np.int32)}, "by version 1000000000, and the trainer"),
        ({"behavior_logprobs": np.array([0, 1], np.float32)}, "log-probs from 0 to 1 are not"),
        ({"behavior_logprobs": np.array([0, -1e9], np.float32)}, r"log-probs from -1e\+09"),
    ],
)
def test_values_out_of_bounds_are_refused(changes, reason):
    with pytest.raises(BadGroup, match=reason):
        check_rows(rows(**changes), version=7)


def test_too_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr(validation, "MAX_ROWS", 1)
    with pytest.raises(BadGroup, match="2 rows, more than 1"):
        check_rows(rows(), version=7)


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"reward": Stat(float("nan"), 2)}, "'reward' is .*nan.* not finite"),
        ({"reward": Total(float("inf"))}, "not finite"),
        ({"n" * 201: Total(1)}, "a metric's name has 201 characters"),
        ({f"m{i}": Total(1) for i in range(1_001)}, "1001 metrics, more than 1000"),
    ],
)
def test_metrics_that_cannot_be_added_up_are_refused(metrics, reason):
    with pytest.raises(BadGroup, match=reason):
        check_metrics(metrics)


def test_a_metric_of_which_nothing_was_counted_is_none_of_those():
    check_metrics({"longest": Peak(), "reward": Stat(0, 0)})


async def test_a_bad_group_among_those_that_are_read_together_goes_to_the_dead_letters_alone(
    tmp_path,
):
    queue = SQLiteQueue(tmp_path / "q")
    good = [group(name) for name in "abcdef"]
    body = group_to_bytes(group("odd", token=123_456))[13:]
    odd = message(body.replace(struct.pack("<i", 123_456), struct.pack("<i", -5)))
    await push(queue, *good[:3])
    await queue.push("odd", odd)
    await queue.push("damaged", odd[:-1])
    await push(queue, *good[3:])
    source = PipelineBatchSource(SQLiteQueue(tmp_path / "q"), groups_per_batch=6, group_size=2)
    await begin(source)
    assert names(await source.next_batch(ALGO)) == [*"abcdef"]
    letters = {letter.key: letter.reason for letter in await queue.dead_letters()}
    assert letters.pop("odd") == "a token id is -5"
    assert "truncated or damaged" in letters.pop("damaged")
    assert not letters
    await source.aclose()
    await queue.aclose()


async def test_a_bad_group_goes_to_the_dead_letters_and_the_batch_waits_for_the_next(tmp_path):
    queue = SQLiteQueue(tmp_path / "q")
    odd = replace(group("odd"), metrics={"reward": Stat(float("nan"), 1)})
    await push(queue, group("a"), odd, group("b"))
    source = PipelineBatchSource(SQLiteQueue(tmp_path / "q"), groups_per_batch=2, group_size=2)
    await begin(source)
    assert names(await source.next_batch(ALGO)) == ["a", "b"]
    (letter,) = await queue.dead_letters()
    assert letter.key == "odd"
    assert "not finite" in letter.reason
    await source.aclose()
    await queue.aclose()
