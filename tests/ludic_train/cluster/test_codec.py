import struct
from dataclasses import fields, replace

import msgspec
import numpy as np
import pytest
from codec_messages import FINITE, INFOS, TEXT, content, message
from hypothesis import given
from hypothesis import strategies as st
from trajectories import trajectory

from ludic_gym.sampling import packed_masks
from ludic_train.algorithms.presets import ppo, reinforce_plus_plus
from ludic_train.cluster.codec import RolloutGroup, group_from_bytes, group_to_bytes
from ludic_train.errors import BadGroup
from ludic_train.metrics import Peak, Stat, Total
from ludic_train.rows import rows_from
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
@given(groups)
def test_what_is_read_is_what_was_written_bit_for_bit(group):
    read = group_from_bytes(group_to_bytes(group))
    assert (read.key, read.actor, read.metrics) == (group.key, group.actor, group.metrics)
    assert list(map(content, read.trajectories)) == list(map(content, group.trajectories))


@pytest.mark.long
@given(groups, st.data())
def test_no_truncated_message_is_read(group, data):
    whole = group_to_bytes(group)
    with pytest.raises(BadGroup, match="truncated"):
        group_from_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(groups, st.data())
def test_no_message_with_a_flipped_bit_is_read(group, data):
    damaged = bytearray(group_to_bytes(group))
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
        (message(b"", schema=5), "schema 5; this version reads 10"),
        (message(b"\x01\x02"), "no msgpack of a group"),
        (message(b"\x9c\xa1\x80"), "no msgpack of a group: 'utf-8'"),
    ],
)
def test_what_is_no_group_is_refused_with_the_reason(data, reason):
    with pytest.raises(BadGroup, match=reason):
        group_from_bytes(data)


def test_more_bytes_than_the_limit_are_refused():
    with pytest.raises(BadGroup, match="5013 bytes, more than max_bytes=4000"):
        group_from_bytes(message(bytes(5000)), max_bytes=4000)


# What the reader refuses besides, the writer refuses by the same function.
@pytest.mark.parametrize(
    ("changes", "facts", "reason"),
    [
        ({"versions": np.zeros(2, np.int32)}, {}, r"a row of 3 tokens has arrays of \[2, 3\]"),
        ({"behavior_logprobs": np.zeros(4, np.float32)}, {}, r"has arrays of \[3, 4\]"),
        ({"experts": np.zeros((2, 1, 1), np.int16)}, {}, r"has arrays of \[2, 3\]"),
        ({"attachments": {"x": np.zeros(3, np.float32)}}, {}, r"has attachments \['x'\]"),
        ({"steps": None}, {}, "or no steps"),
        ({"input_ids": np.array([], np.int32)}, {}, "a row of 0 tokens"),
        ({"versions": np.array([-1, 2, -1], np.int32)}, {}, "Expected `int` >= 0"),
        ({"temperature": float("nan")}, {}, "temperature=nan must be finite"),
        ({}, {"parsed": np.ones(2, bool)}, "2 parsed steps of 1"),
        ({}, {"rewards": np.array([-np.inf])}, r"of the rewards, \[-inf\] are"),
        ({}, {"info": {"x": 2**70}}, "a number or text that msgpack has no form for"),
        ({}, {"info": {"x": "\ud800"}}, "a number or text that msgpack has no form for"),
    ],
)
def test_what_cannot_be_learned_from_is_not_sent(changes, facts, reason):
    with pytest.raises(BadGroup, match=reason):
        group_to_bytes(group_of(row(**changes), **facts))


@pytest.mark.parametrize(
    "changes",
    [{}, {"sampling_mask": packed_masks([[6, 9], [7]], [6, 7]), "input_ids": [5, 6, 7]}],
)
def test_a_token_id_outside_of_the_vocabulary_is_refused(changes):
    changes = {
        name: np.array(v, np.int32) if name == "input_ids" else v for name, v in changes.items()
    }
    largest = 9 if changes else 7
    data = group_to_bytes(group_of(row(**changes)))
    assert group_from_bytes(data, vocab_size=largest + 1).rows
    with pytest.raises(BadGroup, match=f"a token id is {largest}; the model has {largest}"):
        group_from_bytes(data, vocab_size=largest)


def test_arrays_of_a_group_cannot_be_changed():
    (read,) = group_from_bytes(group_to_bytes(group_of(row()))).trajectories
    arrays = [getattr(each, f.name) for each in (read, *read.rows) for f in fields(each)]
    flags = [each.flags.writeable for each in arrays if isinstance(each, np.ndarray)]
    assert len(flags) == 8
    assert not any(flags)


def test_a_group_that_is_too_large_is_not_sent():
    with pytest.raises(BadGroup, match="more than max_bytes=50"):
        group_to_bytes(group_of(row()), max_bytes=50)


# Two trajectories of one step. The first has a row of two tokens, the second of which was sampled;
# the second has a row of one token.
ROW = {
    "length": 2,
    "has_logprobs": True,
    "has_versions": True,
    # Of 3 and 6.
    "masks": b"\x04\0",
    "temperature": 1.0,
    "experts": [1, 2, struct.pack("<4h", 3, 0, -1, -1)],
}
UNSAMPLED = [1, True, False, None, 0.5, None]
ONE = {
    "rows": [[*ROW.values()]],
    "num_steps": 1,
    "num_calls": 1,
    "truncated": False,
    "agent": "x",
    "env_id": "one",
    "task": "t",
    "env_key": "e",
    "info": {"success": True},
}
OTHER = [[UNSAMPLED], 1, 0, True, "y", "two", "u", "f", {"moves": 3, "note": "!"}]
BODY = {
    "key": "k",
    "actor": "a",
    "trajectories": [[*ONE.values()], OTHER],
    "ids": struct.pack("<3i", 5, 6, 7),
    "mask": b"\x02",
    "logprobs": struct.pack("<f", -1),
    "versions": [[4, 1]],
    "steps": [[0, 1]],
    "rewards": struct.pack("<2d", 1, 0.25),
    "parsed": b"\x01\0",
    "completions": struct.pack("<3i", 0, 1, 1),
    "metrics": {"reward": ["Stat", [1, 2]]},
}


def encoded(**changes):
    """A message with some fields of the group, of its first trajectory and of its row changed."""
    row = [changes.pop(name, value) for name, value in ROW.items()]
    one = [changes.pop(name, value) for name, value in {**ONE, "rows": [row]}.items()]
    body = {**BODY, "trajectories": [one, OTHER], **changes}
    return message(msgspec.msgpack.encode(list(body.values())))


def test_the_layout_is_what_a_stranger_would_write():
    read = group_from_bytes(encoded())
    first, second = read.rows
    assert (first.input_ids.tolist(), second.input_ids.tolist()) == ([5, 6], [7])
    assert (first.action_mask.tolist(), second.action_mask.tolist()) == ([False, True], [False])
    assert (first.behavior_logprobs.tolist(), second.behavior_logprobs.tolist()) == ([0, -1], [0])
    assert (first.sampling_mask, second.sampling_mask) == (b"\x04\0", None)
    assert (first.versions.tolist(), second.versions) == ([-1, 4], None)
    assert (first.steps.tolist(), second.steps.tolist()) == ([-1, 0], [-1])
    assert (first.experts.tolist(), second.experts) == ([[[3, 0]], [[-1, -1]]], None)
    assert (second.temperature, second.agent, second.truncated) == (0.5, "y", True)
    one, other = read.trajectories
    assert (one.rows, other.rows) == ((first,), (second,))
    assert (one.rewards.tolist(), other.rewards.tolist()) == ([1.0], [0.25])
    assert (one.parsed.tolist(), other.parsed.tolist()) == ([True], [False])
    assert (one.completions.tolist(), other.completions.tolist()) == ([[0, 1, 1]], [])
    assert (one.group, one.env_id, one.task, one.env_key) == ("k", "one", "t", "e")
    assert (one.success, other.env_key) == (True, "f")
    assert (other.truncated, other.info) == (True, {"moves": 3, "note": "!"})
    assert read.metrics == {"reward": Stat(1, 2)}


BIG = 2**31


BAD = [
    ({"key": ""}, "a key of 0 characters"),
    ({"ids": b"abc"}, "input_ids has 3 bytes, not a multiple of 4"),
    ({"ids": bytes(8)}, "2 input_ids for rows of 3 tokens together"),
    ({"ids": struct.pack("<3i", 5, -6, 7)}, "a token id is -6"),
    ({"length": 3}, "3 input_ids for rows of 4 tokens together"),
    ({"length": BIG - 1}, "3 input_ids for rows of 2147483648 tokens together"),
    ({"length": 0, "ids": bytes(4), "mask": b"\0"}, "a row must begin with a token"),
    ({"mask": b"\x03"}, "and with one that was not sampled"),
    ({"mask": b"\x0a"}, "action_mask marks tokens after the 3 that there are"),
    ({"mask": b"\x02\x00"}, "action_mask has 2 bytes for 3 tokens"),
    ({"has_logprobs": False}, "1 log-probs for 0 tokens"),
    ({"has_versions": False}, "versions has 1 values for 0 sampled tokens"),
    ({"temperature": 0.0}, r"temperature=0\.0 must be finite"),
    ({"temperature": float("inf")}, "temperature=inf must be finite"),
    ({"steps": []}, "steps has 0 values for 1 sampled tokens"),
    ({"steps": [[1, 1]]}, "tokens of none of the steps"),
    ({"steps": [[0, 2]]}, "steps has 2 values for 1 sampled tokens"),
    ({"steps": [[0, BIG - 1]]}, "steps has 2147483647 values for 1 sampled tokens"),
    ({"logprobs": bytes(8)}, "2 log-probs for 1 tokens"),
    ({"logprobs": bytes(3)}, "behavior_logprobs has 3 bytes"),
    ({"logprobs": b"\0\0\xc0\x7f"}, "a log-prob .* is not finite"),
    ({"masks": b""}, "0 sampling masks for 1 tokens"),
    ({"masks": b"\x07\0"}, "a sampling mask has its drawn token twice"),
    ({"masks": b"\x80"}, "1 bytes are no sampling masks"),
    ({"versions": [[BIG, 1]]}, "Expected `int` <= 2147483647"),
    ({"versions": [[4, -1], [4, 2]]}, "Expected `int` >= 0"),
    ({"versions": [[4, 1], [5, 1]]}, "versions has 2 values for 1 sampled tokens"),
    ({"rewards": struct.pack("<2d", 1, float("nan"))}, r"rewards, \[nan\] are not finite"),
    ({"rewards": struct.pack("<2d", -float("inf"), 1)}, r"rewards, \[-inf\] are not finite"),
    ({"rewards": struct.pack("<2d", 1, 1e16)}, r"rewards, \[1e\+16\] are not finite, or above"),
    ({"rewards": bytes(9)}, "rewards has 9 bytes"),
    ({"num_steps": 2}, "2 rewards for 3 steps"),
    ({"num_steps": BIG - 1}, "2 rewards for 2147483648 steps"),
    ({"num_steps": 0, "rewards": bytes(8), "parsed": b"\0"}, "of none of the steps"),
    ({"parsed": b"\0\x02"}, "a parsed flag is 2"),
    ({"parsed": b"\0"}, "1 parsed steps of 2"),
    ({"completions": struct.pack("<3i", 1, 1, 1)}, "a completion is of none of the steps"),
    ({"completions": struct.pack("<3i", 0, -1, 0)}, "a number of a completion is -1"),
    ({"completions": bytes(8)}, "2 numbers of completions instead of 3"),
    ({"num_calls": 2}, "3 numbers of completions instead of 6"),
    ({"num_calls": BIG - 1}, "3 numbers of completions instead of"),
    ({"agent": 1}, "Expected `str`"),
    ({"info": {"x": [1]}}, "no msgpack of a group"),
    ({"experts": [1, 2, bytes(6)]}, "3 experts for 2 tokens of 1 layers and 2 each"),
    ({"experts": [BIG - 1, BIG - 1, bytes(8)]}, "4 experts for 2 tokens of 2147483647 layers"),
    ({"experts": [1, 2, bytes(7)]}, "experts has 7 bytes, not a multiple of 2"),
    ({"experts": [1, 2, struct.pack("<4h", 0, -2, 0, 0)]}, "an expert is -2"),
    ({"rows": [UNSAMPLED[:5]]}, "no msgpack of a group"),
    ({"metrics": {"x": ["system", [1]]}}, "unknown kind"),
]


@pytest.mark.parametrize(("changes", "reason"), BAD)
def test_a_body_that_cannot_be_learned_from_is_refused_with_the_reason(changes, reason):
    with pytest.raises(BadGroup, match=reason):
        group_from_bytes(encoded(**changes))


SMALL = st.integers(-2, 3)
WORDS = SMALL.map(lambda n: struct.pack("<i", n))
RAW = st.binary(max_size=12) | st.lists(WORDS, max_size=4).map(b"".join)
RUNS = st.lists(st.tuples(SMALL, SMALL), max_size=3)
FIELDS = {
    "length": SMALL,
    "has_logprobs": st.booleans(),
    "has_versions": st.booleans(),
    "ids": RAW,
    "mask": st.binary(max_size=2),
    "logprobs": RAW | st.none(),
    "masks": RAW | st.none(),
    "versions": RUNS | st.none(),
    "steps": RUNS,
    "temperature": st.floats(),
    "experts": st.tuples(SMALL, SMALL, RAW) | st.none(),
    "num_steps": SMALL,
    "num_calls": SMALL,
    "rewards": st.lists(st.floats(), max_size=3).map(lambda r: struct.pack(f"<{len(r)}d", *r)),
    "parsed": st.binary(max_size=3) | st.lists(st.sampled_from([0, 1]), max_size=3).map(bytes),
    "completions": st.lists(SMALL, max_size=6).map(lambda c: struct.pack(f"<{len(c)}i", *c)),
    "truncated": st.booleans(),
    **dict.fromkeys(["key", "actor", "agent", "env_id", "task", "env_key"], TEXT),
    "info": st.dictionaries(TEXT, INFOS, max_size=2),
    "metrics": st.dictionaries(TEXT, st.tuples(TEXT, st.lists(FINITE, max_size=3)), max_size=1),
}
ANYTHING = st.recursive(
    st.none() | st.booleans() | SMALL | st.floats() | TEXT | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=6,
)


@given(st.data(), st.lists(st.sampled_from(list(FIELDS)), min_size=1, max_size=3))
def test_whatever_a_field_holds_it_is_refused_or_can_be_learned_from(data, names):
    kind = data.draw(st.sampled_from([FIELDS, dict.fromkeys(FIELDS, ANYTHING)]))
    changes = {name: data.draw(kind[name], label=name) for name in names}
    try:
        read = group_from_bytes(encoded(**changes))
    except BadGroup:
        return
    again = group_from_bytes(group_to_bytes(read))
    assert list(map(content, again.trajectories)) == list(map(content, read.trajectories))
    rows_from(read.trajectories, ppo())
    reinforce_plus_plus().credit(read.trajectories)


def test_runs_of_no_token_in_a_group_without_rows_are_read():
    nothing = {"ids": b"", "mask": b"", "logprobs": b"", "versions": [[4, 0]], "steps": [[5, 0]]}
    nothing |= {"rewards": b"", "parsed": b"", "completions": b""}
    group = group_from_bytes(encoded(trajectories=[], **nothing))
    assert (group.key, group.trajectories) == ("k", ())
