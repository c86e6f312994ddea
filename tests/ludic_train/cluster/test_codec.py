from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
import zstandard
from codec_messages import FINITE, INFOS, TEXT, content, message
from hypothesis import given
from hypothesis import strategies as st
from trajectories import trajectory

from ludic_gym.sampling_masks import packed_masks
from ludic_train.cluster.codec import RolloutGroup, group_from_bytes, group_to_bytes
from ludic_train.errors import BadGroup
from ludic_train.metrics import Peak, Stat, Total
from ludic_train.types import SAWItem, Trajectory

DOUBLES = st.floats(-1e15, 1e15)


@st.composite
def trajectories(draw):
    """Trajectories of any rows, steps and model calls that agree with each other."""
    steps = draw(st.integers(1, 4))
    facts = {"group": KEY, "agent": draw(TEXT), "truncated": draw(st.booleans())}
    calls = st.tuples(st.integers(0, steps - 1), st.integers(0, 2**31 - 1), st.integers(0, 1))
    return Trajectory(
        rows=tuple(draw(rows(steps, facts)) for _ in range(draw(st.integers(0, 3)))),
        rewards=np.array(draw(st.lists(DOUBLES, min_size=steps, max_size=steps))),
        parsed=np.array(draw(st.lists(st.booleans(), min_size=steps, max_size=steps)), bool),
        completions=np.array(draw(st.lists(calls, max_size=6)), np.int32).reshape(-1, 3),
        env_id=draw(TEXT),
        task=draw(TEXT),
        env_key=draw(TEXT),
        info=draw(st.dictionaries(TEXT, INFOS, max_size=3)),
        **facts,
    )


@st.composite
def rows(draw, steps, facts):
    length = draw(st.integers(1, 20))
    mask = np.array([False, *draw(st.lists(st.booleans(), min_size=length, max_size=length))])

    def array(values, dtype, off_mask):
        drawn = draw(st.lists(values, min_size=length + 1, max_size=length + 1))
        return np.where(mask, np.array(drawn, dtype), np.array(off_mask, dtype))

    counts = st.integers(0, 2**31 - 1)
    ids = np.array(draw(st.lists(counts, min_size=length + 1, max_size=length + 1)), np.int32)
    return SAWItem(
        input_ids=ids,
        action_mask=mask,
        weight=np.zeros(length + 1, np.float32),
        behavior_logprobs=array(FINITE, np.float32, 0) if draw(st.booleans()) else None,
        sampling_mask=draw(masks(ids[mask])) if draw(st.booleans()) else None,
        versions=array(counts, np.int32, -1) if draw(st.booleans()) else None,
        steps=array(st.integers(0, steps - 1), np.int32, -1),
        temperature=draw(st.floats(1e-3, 10)),
        experts=draw(experts(length + 1)) if draw(st.booleans()) else None,
        **facts,
    )


@st.composite
def masks(draw, drawn):
    """Sampling masks of the drawn tokens, packed."""
    ids = st.sets(st.integers(0, 2**31 - 1), max_size=3)
    return packed_masks([[*(draw(ids) | {token})] for token in drawn.tolist()], drawn.tolist())


@st.composite
def experts(draw, tokens):
    shape = tokens, draw(st.integers(1, 2)), draw(st.integers(1, 2))
    size = int(np.prod(shape))
    drawn = draw(st.lists(st.integers(-1, 2**15 - 1), min_size=size, max_size=size))
    return np.array(drawn, np.int16).reshape(shape)


KEY = "k"
groups = st.builds(
    RolloutGroup,
    key=st.just(KEY),
    actor=TEXT,
    trajectories=st.lists(trajectories(), max_size=3).map(tuple),
    metrics=st.dictionaries(
        TEXT, st.builds(Stat, FINITE, FINITE) | st.builds(Total, FINITE) | st.builds(Peak, FINITE)
    ),
)


def row(**changes):
    usual = SAWItem(
        input_ids=np.array([5, 6, 7], np.int32),
        action_mask=np.array([False, True, True]),
        weight=np.zeros(3, np.float32),
        versions=np.array([-1, 4, 3], np.int32),
        steps=np.array([-1, 0, 0], np.int32),
    )
    return replace(usual, **changes)


def group_of(*rows, **facts):
    """A group of one trajectory of one step."""
    one = replace(trajectory(1.0), rows=rows, **facts)
    return RolloutGroup(key=KEY, trajectories=(one,))


@pytest.mark.long
@given(groups, st.sampled_from([None, 1, 3]))
def test_what_is_read_is_what_was_written_bit_for_bit(group, level):
    read = group_from_bytes(group_to_bytes(group, zstd_level=level))
    assert (read.key, read.actor, read.metrics) == (group.key, group.actor, group.metrics)
    assert list(map(content, read.trajectories)) == list(map(content, group.trajectories))


@pytest.mark.long
@given(groups, st.sampled_from([None, 1]), st.data())
def test_no_truncated_message_is_read(group, level, data):
    whole = group_to_bytes(group, zstd_level=level)
    with pytest.raises(BadGroup, match="truncated"):
        group_from_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(groups, st.sampled_from([None, 1]), st.data())
def test_no_message_with_a_flipped_bit_is_read(group, level, data):
    damaged = bytearray(group_to_bytes(group, zstd_level=level))
    position = data.draw(st.integers(0, 8 * len(damaged) - 1))
    damaged[position // 8] ^= 1 << position % 8
    with pytest.raises(BadGroup, match=r"damaged|not a group|schema|max_bytes"):
        group_from_bytes(bytes(damaged))


@given(st.binary(max_size=200))
def test_no_bytes_of_a_stranger_do_more_than_be_refused(body):
    with pytest.raises(BadGroup):
        group_from_bytes(message(body))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "truncated: 0 bytes"),
        (b"\x80\x04\x95cbuiltins\neval\n", "not a group: it begins with"),
        (message(b"", schema=5), "schema 5; this version reads 8"),
        (message(b"", how=7), "compression 7 is unknown"),
        (message(b"", size=3), "the body has 0 bytes instead of 3"),
        (message(b"\x01\x02"), "no msgpack of a group"),
        (message(b"\x96\xa1\x80"), "no msgpack of a group: 'utf-8'"),
        (message(b"no frame", how=1), "no zstd frame"),
    ],
)
def test_what_is_no_group_is_refused_with_the_reason(data, reason):
    with pytest.raises(BadGroup, match=reason):
        group_from_bytes(data)


@pytest.mark.parametrize(
    ("size", "reason"),
    [(100, "claims 33554432 bytes instead of 100"), (2**25, "more than max_bytes=4000")],
)
def test_a_bomb_is_refused_before_it_is_unpacked(size, reason):
    bomb = zstandard.compress(bytes(2**25))
    assert len(bomb) < 4000
    with pytest.raises(BadGroup, match=reason):
        group_from_bytes(message(bomb, how=1, size=size), max_bytes=4000)


def test_more_bytes_than_the_limit_are_refused_whatever_they_claim():
    with pytest.raises(BadGroup, match="5018 bytes, more than max_bytes=4000"):
        group_from_bytes(message(bytes(5000), size=10), max_bytes=4000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"versions": np.zeros(2, np.int32)}, r"a row of 3 tokens has arrays of \[2, 3\]"),
        ({"behavior_logprobs": np.zeros(4, np.float32)}, r"has arrays of \[3, 4\]"),
        (
            {"behavior_logprobs": np.array([0, np.nan, 0], np.float32)},
            "a log-prob .* is not finite",
        ),
        (
            {"behavior_logprobs": np.array([0, -np.inf, 0], np.float32)},
            "a log-prob .* is not finite",
        ),
        ({"attachments": {"x": np.zeros(3, np.float32)}}, r"has attachments \['x'\]"),
        ({"sampling_mask": b"\0"}, "1 sampling masks for 2 tokens"),
        ({"versions": np.array([-1, 2, -1], np.int32)}, "Expected `int` >= 0"),
        ({"steps": np.array([-1, 0, -1], np.int32)}, "Expected `int` >= 0"),
        ({"steps": np.array([-1, 0, 1], np.int32)}, "a row has tokens of none of the steps"),
        ({"steps": None}, "or no steps"),
        ({"experts": np.zeros((2, 1, 1), np.int16)}, r"has arrays of \[2, 3\]"),
        ({"experts": np.full((3, 1, 1), -2, np.int16)}, "an expert is -2"),
        (
            {"action_mask": np.ones(3, bool), "versions": None, "steps": np.zeros(3, np.int32)},
            "must begin with a token, and with one that was not sampled",
        ),
        ({"input_ids": np.array([1, -2, 3], np.int32)}, "a token id is -2"),
        ({"temperature": 0.0}, r"temperature=0\.0 must be finite"),
        ({"temperature": float("nan")}, "temperature=nan must be finite"),
        ({"input_ids": np.array([], np.int32)}, "a row of 0 tokens|must begin with a token"),
    ],
)
def test_a_row_that_cannot_be_learned_from_is_not_sent(changes, reason):
    with pytest.raises(BadGroup, match=reason):
        group_to_bytes(group_of(row(**changes)))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"rewards": np.array([np.nan])}, r"of the rewards, \[nan\] are"),
        ({"rewards": np.array([-np.inf])}, r"of the rewards, \[-inf\] are"),
        ({"parsed": np.ones(2, bool)}, "2 parsed steps of 1"),
        ({"completions": np.array([[1, 2, 0]], np.int32)}, "is of none of the steps"),
        ({"completions": np.array([[0, -2, 0]], np.int32)}, "a number of a completion is -2"),
        ({"info": {"x": 2**70}}, "a number or text that msgpack has no form for"),
        ({"info": {"x": "\ud800"}}, "a number or text that msgpack has no form for"),
    ],
)
def test_a_trajectory_that_credit_cannot_be_assigned_to_is_not_sent(facts, reason):
    with pytest.raises(BadGroup, match=reason):
        group_to_bytes(group_of(row(), **facts))


def test_numbers_that_neighbours_have_in_common_are_sent_once():
    sampled = row(versions=np.array([-1, 4, 4], np.int32))
    sent = msgspec.msgpack.decode(group_to_bytes(group_of(sampled, row()))[18:])
    # The first row was sampled by version 4, the second by 4 and 3; both in step 0.
    assert sent[3][3:] == [[[4, 3], [3, 1]], [[0, 4]]]


def test_arrays_of_a_group_cannot_be_changed():
    (read,) = group_from_bytes(group_to_bytes(group_of(row()))).trajectories
    arrays = [getattr(each, f.name) for each in (read, *read.rows) for f in fields(each)]
    flags = [each.flags.writeable for each in arrays if isinstance(each, np.ndarray)]
    assert len(flags) == 8
    assert not any(flags)


def test_a_group_that_is_too_large_is_not_sent():
    with pytest.raises(BadGroup, match="more than max_bytes=50"):
        group_to_bytes(group_of(row()), max_bytes=50)


def test_finite_logprobs_whose_squares_are_not_are_read():
    logprobs = np.array([0, -3e38, -1], np.float32)
    (read,) = group_from_bytes(group_to_bytes(group_of(row(behavior_logprobs=logprobs)))).rows
    assert read.behavior_logprobs.tolist() == logprobs.tolist()
