"""Plain data as JSON that keeps the types JSON lacks: `{"tuple": [...]}`, `{"set": [...]}` ...

A program's results leave its sandbox only in this form, without its classes and so without
comparisons of its own.

>>> encoded({"point": (1, 2.5), "big": 2**64})
{'dict': [['point', {'tuple': [1, 2.5]}], ['big', {'int': '0x10000000000000000'}]]}
>>> decoded({"set": [1]})
{1}
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

# A JSON value, or an object with one key, which is the name of a type.
Tree = Any
Trees = Callable[[Iterable[object]], list[Tree]]
DEEPEST = 100
MOST_PARTS = 20_000
# Beyond it numbers are written in hexadecimal: decimal digits take quadratic time.
LARGEST_INT = 2**63


class NotPlain(TypeError):
    """A value is not plain data; the message names the part that is not."""


def encoded(value: object) -> Tree:
    """The value as a tree. Raises NotPlain for objects that are not data, too many, or too deep.

    Subclasses become their base types: a namedtuple is {"tuple": ...}. A value has at most
    `MOST_PARTS` parts and `DEEPEST` levels, which also refuses cycles.
    """
    return _Encoder().tree(value, 0)


class _Encoder:
    """Counts the parts of one value."""

    def __init__(self) -> None:
        self._parts = 0

    def tree(self, value: object, depth: int) -> Tree:
        """The value as a tree. depth: levels above it."""
        self._parts += 1
        if depth > DEEPEST or self._parts > MOST_PARTS:
            raise NotPlain(f"a value of more than {MOST_PARTS} parts, or {DEEPEST} levels")
        if value is None or value is True or value is False:
            return value
        # Subclasses count as their base types: a namedtuple equals a tuple.
        for kind, encode in _ENCODERS:
            if isinstance(value, kind):
                return encode(value, partial(self._trees, depth + 1))
        raise NotPlain(f"an object of type {type(value).__name__}")

    def _trees(self, depth: int, values: Iterable[object]) -> list[Tree]:
        return [self.tree(value, depth) for value in values]


def decoded(tree: Tree) -> Any:  # noqa: ANN401 (it may be any plain value)
    """The value of a tree. Raises NotPlain, and TypeError for unhashable members."""
    if isinstance(tree, list):
        return [decoded(part) for part in tree]
    if not isinstance(tree, dict):
        return tree
    # Every object has one key: a dict is {"dict": pairs}, because its keys need not be texts.
    ((kind, content),) = tree.items()
    if kind not in _DECODERS:
        raise NotPlain(f"a value marked {kind!r}")
    return _DECODERS[kind](content)


def exact_ints(tree: Tree) -> Tree:
    """The tree with large integers in hexadecimal, and tuples as lists.

    >>> exact_ints([7, 2**64])
    [7, {'int': '0x10000000000000000'}]
    """
    if isinstance(tree, int):
        return tree if -LARGEST_INT < tree < LARGEST_INT else {"int": hex(tree)}
    if isinstance(tree, dict):
        return {key: exact_ints(part) for key, part in tree.items()}
    return [exact_ints(part) for part in tree] if isinstance(tree, list | tuple) else tree


def _int(value: Any, trees: Trees) -> Tree:  # noqa: ANN401
    """The number itself, or {"int": hexadecimal} where JSON parsers may not keep it exact."""
    number = int.__index__(value)
    return number if -LARGEST_INT < number < LARGEST_INT else {"int": hex(number)}


# The base types' own methods, because a subclass may override them.
_ENCODERS: tuple[tuple[type, Callable[[Any, Trees], Tree]], ...] = (
    (str, lambda v, trees: str.__str__(v)),
    (int, _int),
    (float, lambda v, trees: float.__float__(v)),
    (list, lambda v, trees: trees(list.__iter__(v))),
    (tuple, lambda v, trees: {"tuple": trees(tuple.__iter__(v))}),
    (dict, lambda v, trees: {"dict": [trees(pair) for pair in dict.items(v)]}),
    (set, lambda v, trees: {"set": trees(set.__iter__(v))}),
    (frozenset, lambda v, trees: {"frozenset": trees(frozenset.__iter__(v))}),
    (bytes, lambda v, trees: {"bytes": bytes.hex(v)}),
    (bytearray, lambda v, trees: {"bytearray": bytearray.hex(v)}),
    (complex, lambda v, trees: {"complex": [v.real, v.imag]}),
    (range, lambda v, trees: {"range": [v.start, v.stop, v.step]}),
)
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda content: int(content, 16),
    "tuple": lambda content: tuple(decoded(part) for part in content),
    "dict": lambda content: {decoded(key): decoded(value) for key, value in content},
    "set": lambda content: {decoded(part) for part in content},
    "frozenset": lambda content: frozenset(decoded(part) for part in content),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda content: complex(*content),
    "range": lambda content: range(*content),
}
