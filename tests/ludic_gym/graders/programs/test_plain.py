import collections
import enum
import json
import math

import pytest

from ludic_gym.graders.programs.plain import NotPlain, decoded, encoded

Point = collections.namedtuple("Point", "x y")


class Colour(enum.IntEnum):
    RED = 3


VALUES = [
    None,
    True,
    0,
    -(2**63) - 1,
    10**5000,
    1.5,
    "text \ud800 \x00",
    [1, [2]],
    (1, (2,)),
    {"a": (1,), (1, 2): {3}},
    {1, "a"},
    frozenset({1}),
    b"\x00\xff",
    bytearray(b"a"),
    1 - 2j,
    range(1, 9, 2),
    math.inf,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_plain_values_go_through_json_and_keep_their_types(value):
    again = decoded(json.loads(json.dumps(encoded(value))))
    assert again == value
    assert type(again) is type(value)


def test_a_subclass_is_taken_for_what_it_is_built_on():
    assert decoded(encoded(Point(1, 2))) == (1, 2)
    assert type(decoded(encoded(Colour.RED))) is int
    assert type(decoded(encoded(collections.Counter("aab")))) is dict


class Liar(str):
    __slots__ = ()

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__

    def __str__(self):
        return "42"


def test_a_subclass_cannot_say_what_it_is_worth():
    assert encoded(Liar("x")) == "x"
    assert type(encoded(Liar("x"))) is str


@pytest.mark.parametrize("value", [object(), iter([]), len, type, [1, {2: object()}]])
def test_other_objects_are_refused_by_their_type(value):
    with pytest.raises(NotPlain, match="an object of type"):
        encoded(value)


def test_what_is_too_deep_or_too_long_or_holds_itself_is_refused():
    ring = []
    ring.append(ring)
    for value in (ring, list(range(20_001))):
        with pytest.raises(NotPlain, match="more than 20000 parts, or 100 levels"):
            encoded(value)


def test_a_mark_that_nobody_knows_is_refused():
    with pytest.raises(NotPlain, match="marked 'module'"):
        decoded({"module": "os"})
