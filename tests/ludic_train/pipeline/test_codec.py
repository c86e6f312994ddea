import struct
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from trajectories import trajectory

from ludic_train.algorithms.presets import ppo, reinforce_plus_plus
from ludic_train.errors import BadGroup
from ludic_train.metrics import Peak, Stat, Total
from ludic_train.pipeline.codec import group_from_bytes, group_to_bytes
from ludic_train.pipeline.group import RolloutGroup, oldest_version
from ludic_train.rows import rows_from
from ludic_train.types import SAWItem, Trajectory

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=8)
INFOS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | TEXT


INTEGERS = st.integers(-(2**31), 2**31 - 1)


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
        info=draw(st.dictionaries(TEXT, INFOS, max_size=3)),
        **facts,
    )


@st.composite
def rows(draw, steps, facts):
    length = draw(st.integers(1, 20))

    def array(values, dtype):
        return np.array(draw(st.lists(values, min_size=length, max_size=length)), dtype)

    mask = array(st.booleans(), np.bool_)
    mask[0] = False
    names = draw(st.sets(TEXT, max_size=2))
    versions = array(INTEGERS, np.int32) if draw(st.booleans()) else None
    if versions is not None:
        versions[mask] &= 2**31 - 1
    return SAWItem(
        input_ids=array(st.integers(0, 2**31 - 1), np.int32),
        action_mask=mask,
        weight=np.zeros(length, np.float32),
        behavior_logprobs=array(FINITE, np.float32) if draw(st.booleans()) else None,
        versions=versions,
        steps=np.where(mask, array(st.integers(0, steps - 1), np.int32), -1).astype(np.int32),
        temperature=draw(st.floats(1e-3, 10)),
        attachments={name: array(FINITE, np.float32) for name in names},
        **facts,
    )


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


def message(body, *, magic=b"LDCG", schema=3, how=0, size=None):
    """What a stranger who knows the format could send; the checksum is right."""
    head = struct.pack("<4sBBI", magic, schema, how, len(body) if size is None else size)
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


def bits(value):
    """Equal only for equal bits: the sign of zero, the payload of a nan and the dtype count."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, Mapping):
        return {name: (type(each), bits(each)) for name, each in sorted(value.items())}
    return value


def content(each):
    """All fields of a row or a trajectory, down to the bits."""
    values = {f.name: getattr(each, f.name) for f in fields(each)}
    if "rows" in values:
        values["rows"] = [content(row) for row in values["rows"]]
    return {name: bits(value) for name, value in values.items()}


@given(groups, st.sampled_from([None, 1, 3]))
def test_what_is_read_is_what_was_written_bit_for_bit(group, level):
    read = group_from_bytes(group_to_bytes(group, zstd_level=level))
    assert (read.key, read.actor, read.metrics) == (group.key, group.actor, group.metrics)
    assert list(map(content, read.trajectories)) == list(map(content, group.trajectories))


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
        (message(b"", schema=2), "schema 2; this version reads 3"),
        (message(b"", how=7), "compression 7 is unknown"),
        (message(b"", size=3), "the body has 0 bytes instead of 3"),
        (message(b"\x01\x02"), "no msgpack of a group"),
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
    with pytest.raises(BadGroup, match="5014 bytes, more than max_bytes=4000"):
        group_from_bytes(message(bytes(5000), size=10), max_bytes=4000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"versions": np.zeros(2, np.int32)}, "versions has 2 values for 3 tokens"),
        ({"behavior_logprobs": np.array([0, np.nan, 0], np.float32)}, "logprobs holds a value"),
        ({"behavior_logprobs": np.array([0, -np.inf, 0], np.float32)}, "not finite"),
        ({"attachments": {"x": np.zeros(4, np.float32)}}, "x has 4 values"),
        ({"versions": np.array([-1, 2, -1], np.int32)}, "versions lacks"),
        ({"steps": np.array([-1, 0, -1], np.int32)}, "steps lacks"),
        ({"steps": np.array([-1, 0, 1], np.int32)}, "a row has tokens of none of the 1 steps"),
        ({"steps": None}, "a row has tokens of none of the 1 steps"),
        (
            {"action_mask": np.array([True, True, True])},
            "must begin with a token that was not sampled",
        ),
        ({"input_ids": np.array([1, -2, 3], np.int32)}, "a token id is -2"),
        ({"temperature": 0.0}, r"temperature=\[0\.0\]"),
        ({"temperature": float("nan")}, r"temperature=\[nan\]"),
        ({"input_ids": np.array([], np.int32)}, "has no tokens"),
    ],
)
def test_a_row_that_cannot_be_learned_from_is_not_sent(changes, reason):
    with pytest.raises(BadGroup, match=reason):
        group_to_bytes(group_of(row(**changes)))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"rewards": np.array([np.nan])}, r"the rewards \[nan\] are not finite"),
        ({"rewards": np.array([-np.inf])}, r"the rewards \[-inf\] are not finite"),
        ({"parsed": np.ones(2, bool)}, "2 parsed steps of 1"),
        ({"completions": np.array([[1, 2, 0]], np.int32)}, "is of none of the 1 steps"),
        ({"completions": np.array([[0, -2, 0]], np.int32)}, "is of none of the 1 steps"),
        ({"info": {"x": 2**70}}, "a number or text that msgpack has no form for"),
        ({"info": {"x": "\ud800"}}, "a number or text that msgpack has no form for"),
    ],
)
def test_a_trajectory_that_credit_cannot_be_assigned_to_is_not_sent(facts, reason):
    with pytest.raises(BadGroup, match=reason):
        group_to_bytes(group_of(row(), **facts))


# Two rows, of two tokens and one; the second token was sampled. Forms: 0 has a value for every
# token, 1 for every sampled one, 2 one for all sampled tokens of a row. Each row is a trajectory of
# one step; sizes count its rows, steps and model calls.
STREAMS = {
    "steps": [[0, 1], 1, struct.pack("<i", 0)],
    "behavior_logprobs": [[0, 1], 0, struct.pack("<3f", 0, -1, 0)],
    "versions": [[0], 1, struct.pack("<i", 4)],
}
BODY = {
    "key": "k",
    "actor": "a",
    "lengths": struct.pack("<2i", 2, 1),
    "ids": struct.pack("<3i", 5, 6, 7),
    "mask": b"\x02",
    "temperatures": struct.pack("<2d", 1, 0.5),
    "streams": STREAMS,
    "sizes": struct.pack("<6i", 1, 1, 1, 1, 1, 0),
    "rewards": struct.pack("<2d", 1, 0.25),
    "parsed": b"\x01",
    "completions": struct.pack("<3i", 0, 1, 1),
    "truncated": [False, True],
    "agents": ["x", "y"],
    "env_ids": ["one", "two"],
    "tasks": ["t", "u"],
    "infos": [{"success": True}, {"moves": 3, "note": "!"}],
    "metrics": {"reward": ["Stat", [1, 2]]},
}


def encoded(**changes):
    """A message of a body with some fields changed."""
    return message(msgspec.msgpack.encode(list({**BODY, **changes}.values())))


def stream(name, rows, form, values):
    """A body in which one stream is this."""
    return {"streams": STREAMS | {name: [rows, form, values]}}


def test_the_layout_is_what_a_stranger_would_write():
    read = group_from_bytes(encoded())
    first, second = read.rows
    assert (first.input_ids.tolist(), second.input_ids.tolist()) == ([5, 6], [7])
    assert (first.action_mask.tolist(), second.action_mask.tolist()) == ([False, True], [False])
    assert (first.versions.tolist(), second.versions) == ([-1, 4], None)
    assert (first.steps.tolist(), second.steps.tolist()) == ([-1, 0], [-1])
    assert (second.temperature, second.agent, second.truncated) == (0.5, "y", True)
    one, other = read.trajectories
    assert (one.rows, other.rows) == ((first,), (second,))
    assert (one.rewards.tolist(), other.rewards.tolist()) == ([1.0], [0.25])
    assert (one.parsed.tolist(), other.parsed.tolist()) == ([True], [False])
    assert (one.completions.tolist(), other.completions.tolist()) == ([[0, 1, 1]], [])
    assert (one.group, one.env_id, one.task, one.success) == ("k", "one", "t", True)
    assert (other.truncated, other.info) == (True, {"moves": 3, "note": "!"})
    assert read.metrics == {"reward": Stat(1, 2)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": ""}, "a key of 0 characters"),
        ({"lengths": b""}, "input_ids has 3 values instead of 0"),
        ({"lengths": b"abc"}, "lengths has 3 bytes, not a multiple of 4"),
        ({"lengths": struct.pack("<2i", 3, 0)}, r"rows of \[3, 0\] tokens"),
        ({"lengths": struct.pack("<2i", 2**31 - 1, 2**31 - 1)}, "input_ids has 3 values instead"),
        ({"ids": struct.pack("<3i", 5, -6, 7)}, "a token id is -6"),
        (
            {"mask": b"\x06", **stream("steps", [0, 1], 0, struct.pack("<3i", -1, 0, 0))},
            "must begin with a token that was not sampled",
        ),
        ({"mask": b"\x12"}, "action_mask marks values after the 3 that there are"),
        ({"mask": b"\x02\x00"}, "action_mask has 2 bytes for 3 values"),
        ({"temperatures": struct.pack("<2d", 1, 0)}, r"temperature=\[1\.0, 0\.0\]"),
        ({"temperatures": struct.pack("<2d", 1, float("inf"))}, r"temperature=\[1\.0, inf\]"),
        ({"streams": {}}, "not each of the 2 rows has its steps"),
        ({"streams": {"steps": [[0], 1, bytes(4)]}}, "not each of the 2 rows has its steps"),
        (stream("steps", [0, 1], 1, struct.pack("<i", 1)), "tokens of none of the 1 steps"),
        (stream("steps", [0, 1], 1, struct.pack("<i", -1)), "steps lacks"),
        (stream("behavior_logprobs", [0, 1], 0, bytes(8)), "logprobs has 2 values instead of 3"),
        (stream("behavior_logprobs", [0, 1], 1, b"\0\0\xc0\x7f"), "logprobs holds a value"),
        (stream("behavior_logprobs", [0, 1], 3, bytes(8)), "logprobs has the unknown form 3"),
        (stream("versions", [0], 0, struct.pack("<2i", 1, -1)), "versions lacks"),
        (stream("versions", [0], 2, struct.pack("<i", -7)), "versions lacks"),
        (stream("versions", [0], 0, bytes(4)), "versions has 1 values instead of 2"),
        (stream("versions", [0], 1, bytes(8)), "versions has 2 values instead of 1"),
        (stream("versions", [0], 2, bytes(8)), "versions has 2 values instead of 1"),
        (stream("attachments/x", [2], 0, b""), r"of the rows \[2\], and there are 2"),
        (stream("attachments/x", [-1], 0, b""), r"of the rows \[-1\], and there are 2"),
        (stream("attachments/x", [0, 0], 0, bytes(16)), r"of the rows \[0, 0\]"),
        (stream("attachments/x", [1, 0], 0, bytes(12)), r"of the rows \[1, 0\]"),
        (stream("behavior_logprobs", [1], 0, b"\0\0\x80\x7f"), "not finite"),
        (stream("__class__", [1], 0, bytes(4)), "stream '__class__' is unknown"),
        (stream("weight", [0, 1], 0, bytes(12)), "stream 'weight' is unknown"),
        ({"sizes": bytes(4)}, "sizes has 1 values instead of 6"),
        ({"sizes": b"abc"}, "sizes has 3 bytes, not a multiple of 4"),
        ({"sizes": struct.pack("<6i", -1, 1, 1, 3, 1, 0)}, r"sizes of trajectories are \[\[-1"),
        ({"sizes": struct.pack("<6i", 1, 1, 1, 2, 1, 0)}, "have 3 rows, not 2"),
        ({"sizes": struct.pack("<6i", 1, 2**31 - 1, 1, 1, 2**31 - 1, 0)}, "rewards has 2 values"),
        ({"sizes": struct.pack("<6i", 1, 2, 1, 1, 1, 0)}, "rewards has 2 values instead of 3"),
        ({"sizes": struct.pack("<6i", 1, 1, 2, 1, 1, 0)}, "completions has 3 values instead of 6"),
        ({"rewards": struct.pack("<2d", 1, float("nan"))}, r"rewards \[nan\] are not finite"),
        ({"rewards": bytes(9)}, "rewards has 9 bytes, not a multiple of 8"),
        ({"parsed": b""}, "parsed has 0 bytes for 2 values"),
        ({"parsed": b"\x05"}, "parsed marks values after the 2"),
        ({"completions": struct.pack("<3i", 1, 1, 1)}, "a completion is of none of the 1 steps"),
        ({"completions": struct.pack("<3i", 0, -1, 0)}, "a completion is of none of the 1 steps"),
        ({"truncated": [True]}, r"facts of \[1, 2, 2, 2, 2\] trajectories"),
        ({"infos": [{}, {}, {}]}, r"facts of \[2, 2, 2, 2, 3\] trajectories"),
        ({"infos": [{}, {"x": [1]}]}, "no msgpack of a group"),
        ({"metrics": {"x": ["system", [1]]}}, "unknown kind"),
        ({"metrics": {"x": ["Stat", [1]]}}, "unknown kind"),
    ],
)
def test_a_body_that_cannot_be_learned_from_is_refused_with_the_reason(changes, reason):
    with pytest.raises(BadGroup, match=reason):
        group_from_bytes(encoded(**changes))


SMALL = st.integers(-2, 3).map(lambda n: struct.pack("<i", n))
RAW = st.binary(max_size=24) | st.lists(SMALL, max_size=8).map(b"".join)
LIST = st.lists(st.integers(-1, 3), max_size=3)
HOSTILE = {
    **dict.fromkeys(BODY, RAW),
    "streams": st.dictionaries(
        st.sampled_from(["attachments/x", *STREAMS]), st.tuples(LIST, st.integers(0, 3), RAW)
    ).map(lambda found: {**STREAMS, **found}),
    **dict.fromkeys(["key", "actor"], TEXT),
    **dict.fromkeys(["agents", "env_ids", "tasks"], st.lists(TEXT, max_size=3)),
    "truncated": st.lists(st.booleans(), max_size=3),
    "infos": st.lists(st.dictionaries(TEXT, INFOS, max_size=1), max_size=3),
    "metrics": st.dictionaries(TEXT, st.tuples(TEXT, st.lists(FINITE, max_size=3)), max_size=1),
}


@given(st.data(), st.lists(st.sampled_from(list(BODY)), min_size=1, max_size=3))
def test_whatever_a_field_holds_it_is_refused_or_can_be_learned_from(data, names):
    changes = {name: data.draw(HOSTILE[name], label=name) for name in names}
    try:
        read = group_from_bytes(encoded(**changes))
    except BadGroup:
        return
    again = group_from_bytes(group_to_bytes(read))
    assert list(map(content, again.trajectories)) == list(map(content, read.trajectories))
    rows_from(read.trajectories, ppo())
    reinforce_plus_plus().credit(read.trajectories)


@pytest.mark.parametrize(
    ("logprobs", "form", "values"),
    [
        ([0, 0.5, 0.5], 2, [0.5]),
        ([0, 0.5, 0.25], 1, [0.5, 0.25]),
        ([1, 0.5, 0.5], 0, [1, 0.5, 0.5]),
        ([-0.0, 0.5, 0.5], 0, [-0.0, 0.5, 0.5]),
        ([0, 0.0, -0.0], 1, [0.0, -0.0]),
    ],
)
def test_a_stream_is_sent_in_the_smallest_form_that_keeps_its_bits(logprobs, form, values):
    sent = group_to_bytes(group_of(row(behavior_logprobs=np.array(logprobs, np.float32))))
    streams = msgspec.msgpack.decode(sent[14:])[6]
    assert streams["behavior_logprobs"] == [[0], form, struct.pack(f"<{len(values)}f", *values)]
    # Sampled by two versions.
    assert streams["versions"] == [[0], 1, struct.pack("<2i", 4, 3)]
    assert streams["steps"] == [[0], 2, struct.pack("<i", 0)]


def test_a_group_that_is_too_large_is_not_sent():
    with pytest.raises(BadGroup, match="more than max_bytes=50"):
        group_to_bytes(group_of(row()), max_bytes=50)


def test_the_oldest_version_is_that_of_sampled_tokens_alone():
    old = row(versions=np.array([-1, 9, 2], np.int32))
    assert oldest_version([row(), old]) == 2
    assert oldest_version([row(), row(versions=None)]) is None
