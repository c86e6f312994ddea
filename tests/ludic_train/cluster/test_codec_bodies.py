"""Bodies of groups from a stranger."""

import re
import struct
from functools import partial

import msgspec
import pytest
from codec_messages import FINITE, INFOS, TEXT, content, message
from hypothesis import given
from hypothesis import strategies as st

from ludic_train.algorithms.presets import ppo, reinforce_plus_plus
from ludic_train.cluster.codec import (
    bounded_group_from_bytes,
    group_from_bytes,
    group_readers,
    group_to_bytes,
)
from ludic_train.errors import BadGroup
from ludic_train.metrics import Stat
from ludic_train.rows import rows_from

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
TOKENS = {
    "ids": struct.pack("<3i", 5, 6, 7),
    "mask": b"\x02",
    "logprobs": struct.pack("<f", -1),
    "versions": [[4, 1]],
    "steps": [[0, 1]],
}
STEPS = {
    "rewards": struct.pack("<2d", 1, 0.25),
    "parsed": b"\x01\0",
    "completions": struct.pack("<3i", 0, 1, 1),
}
BODY = {
    "key": "k",
    "actor": "a",
    "trajectories": [[*ONE.values()], OTHER],
    "tokens": [*TOKENS.values()],
    "of_steps": [*STEPS.values()],
    "metrics": {"reward": ["Stat", [1, 2]]},
}


def encoded(**changes):
    """A message with some fields of the group, its arrays, its first trajectory and row changed.

    other: its second trajectory.
    """
    row = [changes.pop(name, value) for name, value in ROW.items()]
    one = [changes.pop(name, value) for name, value in {**ONE, "rows": [row]}.items()]
    tokens = [changes.pop(name, value) for name, value in TOKENS.items()]
    steps = [changes.pop(name, value) for name, value in STEPS.items()]
    found = {
        "trajectories": [one, changes.pop("other", OTHER)],
        "tokens": tokens,
        "of_steps": steps,
    }
    body = {**BODY, **found, **changes}
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
    ({"key": "k" * 201}, "a key of 201 characters"),
    ({"ids": b"abc"}, "input_ids has 3 bytes, not a multiple of 4"),
    ({"ids": bytes(8)}, "2 input_ids for rows of 3 tokens together"),
    ({"ids": struct.pack("<3i", 5, -6, 7)}, "a token id is -6"),
    ({"length": 3}, "3 input_ids for rows of 4 tokens together"),
    ({"length": BIG - 1}, "3 input_ids for rows of 2147483648 tokens together"),
    ({"length": -1}, "Expected `int` >= 0"),
    ({"length": 0, "ids": bytes(4), "mask": b"\0"}, "a row must begin with a token"),
    ({"mask": b"\x03"}, "and with one that was not sampled"),
    ({"mask": b"\x06"}, "and with one that was not sampled"),
    ({"mask": b"\x0a"}, "action_mask marks tokens after the 3 that there are"),
    ({"mask": b"\x02\x00"}, "action_mask has 2 bytes for 3 tokens"),
    ({"has_logprobs": False}, "1 log-probs for 0 tokens"),
    ({"has_logprobs": 1}, "Expected `bool`"),
    ({"has_versions": False}, "versions has 1 values for 0 sampled tokens"),
    ({"temperature": 0.0}, r"temperature=0\.0 must be finite"),
    ({"temperature": float("inf")}, "temperature=inf must be finite"),
    ({"temperature": "1"}, "Expected `float`"),
    ({"steps": None}, "Expected `array`"),
    ({"steps": []}, "steps has 0 values for 1 sampled tokens"),
    ({"steps": [[1, 1]]}, "tokens of none of the steps"),
    ({"steps": [[-1, 1]]}, "Expected `int` >= 0"),
    ({"steps": [[0, 2]]}, "steps has 2 values for 1 sampled tokens"),
    ({"steps": [[0, BIG - 1]]}, "steps has 2147483647 values for 1 sampled tokens"),
    ({"steps": [[0, 1, 1]]}, "Expected `array` of length 2"),
    ({"logprobs": bytes(8)}, "2 log-probs for 1 tokens"),
    ({"logprobs": bytes(3)}, "behavior_logprobs has 3 bytes"),
    ({"logprobs": b"\0\0\xc0\x7f"}, "a log-prob .* is not finite"),
    ({"logprobs": b"\0\0\x80\x7f"}, "a log-prob .* is not finite"),
    ({"masks": b""}, "0 sampling masks for 1 tokens"),
    ({"masks": b"\0\0"}, "2 sampling masks for 1 tokens"),
    ({"masks": b"\x07\0"}, "a sampling mask has its drawn token twice"),
    ({"masks": b"\x80"}, "1 bytes are no sampling masks"),
    ({"versions": [[-7, 1]]}, "Expected `int` >= 0"),
    ({"versions": [[BIG, 1]]}, "Expected `int` <= 2147483647"),
    ({"versions": [[4, -1], [4, 2]]}, "Expected `int` >= 0"),
    ({"versions": [[4, 1], [5, 1]]}, "versions has 2 values for 1 sampled tokens"),
    ({"rewards": struct.pack("<2d", 1, float("nan"))}, r"rewards, \[nan\] are not finite"),
    ({"rewards": struct.pack("<2d", -float("inf"), 1)}, r"rewards, \[-inf\] are not finite"),
    ({"rewards": struct.pack("<2d", 1, 1e16)}, r"rewards, \[1e\+16\] are not finite, or above"),
    ({"rewards": b""}, "0 rewards for 2 steps"),
    ({"rewards": bytes(9)}, "rewards has 9 bytes"),
    ({"num_steps": 2}, "2 rewards for 3 steps"),
    ({"num_steps": BIG}, "Expected `int` <= 2147483647"),
    ({"num_steps": BIG - 1}, "2 rewards for 2147483648 steps"),
    ({"num_steps": 0, "rewards": bytes(8), "parsed": b"\0"}, "of none of the steps"),
    ({"parsed": b"\0\x02"}, "a parsed flag is 2"),
    ({"parsed": b"\0"}, "1 parsed steps of 2"),
    ({"completions": struct.pack("<3i", 1, 1, 1)}, "a completion is of none of the steps"),
    ({"completions": struct.pack("<3i", 0, -1, 0)}, "a number of a completion is -1"),
    ({"completions": bytes(8)}, "2 numbers of completions instead of 3"),
    ({"num_calls": 2}, "3 numbers of completions instead of 6"),
    ({"num_calls": BIG - 1}, "3 numbers of completions instead of"),
    ({"truncated": 1}, "Expected `bool`"),
    ({"agent": 1}, "Expected `str`"),
    ({"info": {"x": [1]}}, "no msgpack of a group"),
    ({"experts": [1, 2, bytes(6)]}, "3 experts for 2 tokens of 1 layers and 2 each"),
    ({"experts": [0, 2, b""]}, "0 experts for 2 tokens"),
    ({"experts": [BIG - 1, BIG - 1, bytes(8)]}, "4 experts for 2 tokens of 2147483647 layers"),
    ({"experts": [1, 2, bytes(7)]}, "experts has 7 bytes, not a multiple of 2"),
    ({"experts": [1, 2, struct.pack("<4h", 0, -2, 0, 0)]}, "an expert is -2"),
    ({"experts": [-1, 2, bytes(8)]}, "Expected `int` >= 0"),
    ({"rows": [UNSAMPLED[:5]]}, "no msgpack of a group"),
    ({"rows": [[*UNSAMPLED, 1]]}, "no msgpack of a group"),
    ({"metrics": {"x": ["system", [1]]}}, "unknown kind"),
    ({"metrics": {"x": ["Stat", [1]]}}, "unknown kind"),
]


@pytest.mark.parametrize(("changes", "reason"), BAD)
def test_a_body_that_cannot_be_learned_from_is_refused_with_the_reason(changes, reason):
    with pytest.raises(BadGroup, match=reason):
        group_from_bytes(encoded(**changes))


# With all streams, so that its groups can be checked together.
DATED = [[[1, True, True, None, 0.5, None]], *OTHER[1:]]
GOOD = [encoded(key=f"{n}", other=DATED, versions=[[n, 1]]) for n in range(4)]


def outcome(read):
    """The group of a message and its bounds, or the text of the error."""
    try:
        group, bounds = read()
    except BadGroup as error:
        return str(error)
    return group.key, group.metrics, list(map(content, group.trajectories)), bounds


def assert_as_alone(messages):
    alone = [outcome(partial(bounded_group_from_bytes, data)) for data in messages]
    assert [outcome(read) for read in group_readers(messages)] == alone


def test_small_groups_are_checked_together_and_are_what_each_is_alone():
    assert_as_alone(GOOD)
    first, *others = [read()[0].rows[0].input_ids.base for read in group_readers(GOOD)]
    assert all(other is first for other in others)


def test_too_few_or_too_large_groups_are_read_alone():
    for messages in (GOOD[:3], [encoded(key=f"{n}", task="t" * 2**16) for n in range(8)]):
        assert_as_alone(messages)
        first, *others = [read()[0].rows[0].input_ids.base for read in group_readers(messages)]
        assert all(other is not first for other in others)


def test_messages_that_are_all_bad_are_refused_each_for_its_reason():
    assert_as_alone([b"", *[message(b"")] * 3, encoded(key="")])
    assert list(group_readers([])) == []


@pytest.mark.parametrize(("changes", "reason"), BAD)
def test_a_bad_body_among_good_ones_is_refused_with_the_reason_and_they_are_read(changes, reason):
    messages = [*GOOD[:2], encoded(other=DATED, **changes), *GOOD[2:]]
    assert_as_alone(messages)
    outcomes = [outcome(read) for read in group_readers(messages)]
    assert re.search(reason, outcomes.pop(2))
    assert [found[0] for found in outcomes] == ["0", "1", "2", "3"]


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


@given(st.data())
def test_whatever_fields_of_several_groups_hold_each_is_read_as_if_it_were_alone(data):
    few = st.dictionaries(st.sampled_from(list(FIELDS)), st.none(), max_size=2)
    messages = []
    for number in range(data.draw(st.integers(4, 6))):
        drawn = {name: data.draw(FIELDS[name], label=name) for name in data.draw(few)}
        messages.append(encoded(**{"key": f"{number}", "other": DATED} | drawn))
    assert_as_alone(messages)


def test_runs_of_no_token_in_a_group_without_rows_are_read():
    nothing = {"ids": b"", "mask": b"", "logprobs": b"", "versions": [[4, 0]], "steps": [[5, 0]]}
    nothing |= {"rewards": b"", "parsed": b"", "completions": b""}
    group = group_from_bytes(encoded(trajectories=[], **nothing))
    assert (group.key, group.trajectories) == ("k", ())
