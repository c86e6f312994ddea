import struct
import zlib
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ludic_train.errors import BadGroup
from ludic_train.metrics import Peak, Stat, Total
from ludic_train.pipeline.codec import group_from_bytes, group_to_bytes
from ludic_train.pipeline.group import SAWGroup, oldest_version
from ludic_train.types import SAWItem

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=8)


@st.composite
def items(draw):
    length = draw(st.integers(1, 20))

    def array(values, dtype):
        return np.array(draw(st.lists(values, min_size=length, max_size=length)), dtype)

    mask = array(st.booleans(), np.bool_)
    mask[0] = False
    return SAWItem(
        input_ids=array(st.integers(0, 2**31 - 1), np.int32),
        action_mask=mask,
        weight=array(FINITE, np.float32),
        behavior_logprobs=array(FINITE, np.float32) if draw(st.booleans()) else None,
        versions=array(st.integers(0, 2**31 - 1), np.int32) if draw(st.booleans()) else None,
        temperature=draw(st.floats(1e-3, 10)),
        group=draw(TEXT),
        agent=draw(TEXT),
        attachments={name: array(FINITE, np.float32) for name in draw(st.sets(TEXT, max_size=2))},
    )


groups = st.builds(
    SAWGroup,
    key=st.text(min_size=1, max_size=9),
    actor=TEXT,
    items=st.lists(items(), max_size=3).map(tuple),
    metrics=st.dictionaries(
        TEXT, st.builds(Stat, FINITE, FINITE) | st.builds(Total, FINITE) | st.builds(Peak, FINITE)
    ),
)


def row(**changes):
    usual = SAWItem(
        input_ids=np.array([5, 6, 7], np.int32),
        action_mask=np.array([False, True, True]),
        weight=np.array([0, 1, 1], np.float32),
        versions=np.array([-1, 4, 3], np.int32),
    )
    return replace(usual, **changes)


def message(body, *, magic=b"LDCG", schema=2, how=0, size=None):
    """What a stranger who knows the format could send; the checksum is right."""
    head = struct.pack("<4sBBI", magic, schema, how, len(body) if size is None else size)
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


def bits(value):
    """Equal only for equal bits: the sign of zero and the dtype count."""
    return (value.dtype.str, value.tobytes()) if isinstance(value, np.ndarray) else value


def content(item):
    values = {f.name: bits(getattr(item, f.name)) for f in fields(item)}
    return values | {"attachments": {n: bits(a) for n, a in sorted(item.attachments.items())}}


@given(groups, st.sampled_from([None, 1, 3]))
def test_what_is_read_is_what_was_written_bit_for_bit(group, level):
    read = group_from_bytes(group_to_bytes(group, zstd_level=level))
    assert (read.key, read.actor, read.metrics) == (group.key, group.actor, group.metrics)
    assert [content(item) for item in read.items] == [content(item) for item in group.items]


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
        (message(b"", schema=1), "schema 1; this version reads 2"),
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
        ({"weight": np.zeros(2, np.float32)}, "weight has 2 values for 3 tokens"),
        ({"weight": np.array([0, np.nan, 0], np.float32)}, "weight holds a value that is not"),
        ({"behavior_logprobs": np.array([0, -np.inf, 0], np.float32)}, "not finite"),
        ({"attachments": {"x": np.zeros(4, np.float32)}}, "x has 4 values"),
        ({"versions": np.array([-1, 2, -1], np.int32)}, "versions lacks"),
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
        group_to_bytes(SAWGroup(key="k", items=(row(**changes),)))


# Two rows, of two tokens and one; the second token was sampled. Forms: 0 has a value for every
# token, 1 for every sampled one, 2 one for all sampled tokens of a row.
STREAMS = {
    "weight": [[0, 1], 0, struct.pack("<3f", 0, 1, 0)],
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
    "groups": ["g", "g"],
    "agents": ["x", "y"],
    "metrics": {"reward": ["Stat", [1, 2]]},
}


def stream(name, rows, form, values):
    """A body in which one stream is this."""
    return {"streams": STREAMS | {name: [rows, form, values]}}


def test_the_layout_is_what_a_stranger_would_write():
    read = group_from_bytes(message(msgspec.msgpack.encode(list(BODY.values()))))
    first, second = read.items
    assert (first.input_ids.tolist(), second.input_ids.tolist()) == ([5, 6], [7])
    assert (first.action_mask.tolist(), second.action_mask.tolist()) == ([False, True], [False])
    assert (first.versions.tolist(), second.versions) == ([-1, 4], None)
    assert (second.temperature, second.agent) == (0.5, "y")
    assert read.metrics == {"reward": Stat(1, 2)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": ""}, "a key of 0 characters"),
        ({"lengths": b""}, r"2 groups for rows of \[\]"),
        ({"lengths": b"", "groups": [], "agents": []}, "input_ids has 3 values instead of 0"),
        ({"lengths": b"abc"}, "lengths has 3 bytes, not a multiple of 4"),
        ({"lengths": struct.pack("<2i", 3, 0)}, r"rows of \[3, 0\] tokens"),
        ({"lengths": struct.pack("<2i", 2**31 - 1, 2**31 - 1)}, "input_ids has 3 values instead"),
        ({"ids": struct.pack("<3i", 5, -6, 7)}, "a token id is -6"),
        ({"mask": b"\x06"}, "must begin with a token that was not sampled"),
        ({"mask": b"\x12"}, "marks tokens after the 3 that there are"),
        ({"mask": b"\x02\x00"}, "action_mask has 2 bytes for 3 tokens"),
        ({"temperatures": struct.pack("<2d", 1, 0)}, r"temperature=\[1\.0, 0\.0\]"),
        ({"temperatures": struct.pack("<2d", 1, float("inf"))}, r"temperature=\[1\.0, inf\]"),
        ({"streams": {}}, "not each of the 2 rows has a weight"),
        ({"streams": {"weight": [[0], 0, bytes(8)]}}, "not each of the 2 rows has a weight"),
        (stream("weight", [0, 1], 0, bytes(8)), "weight has 2 values instead of 3"),
        (stream("weight", [0, 1], 1, b"\0\0\xc0\x7f"), "weight holds a value"),
        (stream("weight", [0, 1], 3, bytes(8)), "weight has the unknown form 3"),
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
        ({"groups": ["g"]}, "1 groups for rows"),
        ({"metrics": {"x": ["system", [1]]}}, "unknown kind"),
        ({"metrics": {"x": ["Stat", [1]]}}, "unknown kind"),
    ],
)
def test_a_body_that_cannot_be_learned_from_is_refused_with_the_reason(changes, reason):
    body = msgspec.msgpack.encode(list({**BODY, **changes}.values()))
    with pytest.raises(BadGroup, match=reason):
        group_from_bytes(message(body))


@pytest.mark.parametrize(
    ("weight", "form", "values"),
    [
        ([0, 0.5, 0.5], 2, [0.5]),
        ([0, 0.5, 0.25], 1, [0.5, 0.25]),
        ([1, 0.5, 0.5], 0, [1, 0.5, 0.5]),
        ([-0.0, 0.5, 0.5], 0, [-0.0, 0.5, 0.5]),
        ([0, 0.0, -0.0], 1, [0.0, -0.0]),
    ],
)
def test_a_stream_is_sent_in_the_smallest_form_that_keeps_its_bits(weight, form, values):
    sent = group_to_bytes(SAWGroup(key="k", items=(row(weight=np.array(weight, np.float32)),)))
    streams = msgspec.msgpack.decode(sent[14:])[6]
    assert streams["weight"] == [[0], form, struct.pack(f"<{len(values)}f", *values)]
    # Sampled by two versions.
    assert streams["versions"] == [[0], 1, struct.pack("<2i", 4, 3)]


def test_a_group_that_is_too_large_is_not_sent():
    with pytest.raises(BadGroup, match="more than max_bytes=50"):
        group_to_bytes(SAWGroup(key="k", items=(row(),)), max_bytes=50)


def test_the_oldest_version_is_that_of_sampled_tokens_alone():
    old = row(versions=np.array([-1, 9, 2], np.int32))
    assert oldest_version([row(), old]) == 2
    assert oldest_version([row(), row(versions=None)]) is None
