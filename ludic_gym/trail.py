"""Trails: token ids, log-probs and messages of model calls, which take memory once per dialog.

Each prompt of a dialog begins with the one before it. As lists of their own, the prompts of an
episode would take memory with the square of its turns.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar, overload

from ludic_gym.errors import ConfigError

T = TypeVar("T")
# Items in a repr.
SHOWN = 32
# Continuations may be made in any thread.
_LOCK = Lock()


class Trail(Sequence[T]):
    """An immutable sequence, whose continuations share its memory.

    `trail + more` is appended to the store of the trail, and is the longer beginning of it. A
    trail that was continued otherwise before is copied.
    Equal to a trail, tuple or list of equal items. Slices are tuples.

    >>> prompt = Trail([5, 6])
    >>> longer = prompt + [7]
    >>> longer, prompt, longer.kept(prompt)
    ((5, 6, 7), (5, 6), 2)
    """

    __slots__ = ("_start", "_stop", "_store")

    def __init__(
        self, store: list[T] | array[Any], start: int = 0, stop: int | None = None
    ) -> None:
        # The caller must not change the store any more.
        self._store, self._start = store, start
        self._stop = len(store) if stop is None else stop

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(self._start, self._stop)[index]
        if isinstance(places, int):
            item: T = self._store[places]
            return item
        if places.step == 1:
            return tuple(self._store[places.start : places.stop])
        return tuple(self._store[place] for place in places)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    @property
    def items(self) -> list[T] | array[Any]:
        """The items, as a copy."""
        return self._store[self._start : self._stop]

    def then(self, *items: T) -> Trail[T]:
        """The trail with these items after its own."""
        return self + items

    def __add__(self, more: Iterable[T]) -> Trail[T]:
        new: Any = more.items if type(more) is Trail else more
        if type(self._store) is array and type(new) is not array:
            new = array(self._store.typecode, new)
        with _LOCK:
            store: Any = self._store
            start, end = self._start, self._stop + len(new)
            # What has been added to it already may be the same: candidates for one turn continue a
            # prompt in one way. Of messages, equal ones may have been sampled as other tokens.
            if len(store) > self._stop:
                there = store[self._stop : end]
                if type(store) is list or there != new[: len(there)]:
                    store, start, end = self.items, 0, len(self) + len(new)
                else:
                    new = new[len(there) :]
            store.extend(new)
        return Trail(store, start, end)

    def __radd__(self, before: Sequence[T]) -> tuple[T, ...]:
        return (*before, *self)

    def __eq__(self, other: object) -> bool:
        if type(other) is Trail:
            return len(other) == len(self) == self.kept(other)
        return tuple(self) == tuple(other) if isinstance(other, tuple | list) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        # asyncio takes the repr of each task's result: of all prompts, it would be quadratic.
        more = len(self) - SHOWN
        shown = repr(self[:SHOWN])
        return shown if more <= 0 else f"{shown[:-1]}, ... {more} more)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Trail[T]:
        return self

    def first(self, length: int) -> Trail[T]:
        """The first items."""
        return Trail(self._store, self._start, min(self._start + length, self._stop))

    def after(self, length: int) -> Trail[T]:
        """The items after the first ones."""
        return Trail(self._store, min(self._start + length, self._stop), self._stop)

    def on(self, before: Trail[T]) -> Trail[T]:
        """The same items, in the memory of the other trail if they begin with all of it."""
        if self._store is before._store or self.kept(before) < len(before):
            return self
        return before + self.after(len(before)).items

    @property
    def is_newest(self) -> bool:
        """True if it has not been continued yet."""
        return len(self._store) == self._stop

    def continues(self, before: Trail[T]) -> bool:
        """True if it was made by continuing the other trail, or is that itself."""
        is_of_one = self._store is before._store and self._start == before._start
        return is_of_one and self._stop >= before._stop

    def kept(self, before: Trail[T]) -> int:
        """Number of the first items that are those of the other trail."""
        low = 0
        end = high = min(len(self), len(before))
        # Of one dialog, whatever its length.
        if self._store is before._store and self._start == before._start:
            return high
        ours, theirs, i, j = self._store, before._store, self._start, before._start
        while low < high:
            if ours[i + low : i + end] == theirs[j + low : j + end]:
                low = end
            else:
                high = end - 1
            end = (low + high + 1) // 2
        return low


def as_trail(items: Iterable[T]) -> Trail[T]:
    """The items as a trail, which may be one already."""
    return items if type(items) is Trail else Trail(list(items))


def token_ids(ids: Iterable[int]) -> Trail[int]:
    """Token ids as a trail, 4 bytes each. Raises ConfigError for one that is no int32."""
    if type(ids) is Trail:
        return ids
    ids = tuple(ids)
    try:
        # Without the room that an array keeps to grow.
        return Trail(array("i", _packer(len(ids), "i").pack(*ids))[:])
    except struct.error as error:
        raise ConfigError(
            f"token ids are integers of 32 bits, got {ids[:8]}...: {error}"
        ) from error


def float_numbers(numbers: Iterable[float]) -> Trail[float]:
    """The very numbers as a trail; 4 bytes each if they are all of float32, else 8."""
    if type(numbers) is Trail:
        return numbers
    numbers = tuple(numbers)
    packer = _packer(len(numbers), "f")
    with suppress(OverflowError):
        short = packer.pack(*numbers)
        if packer.unpack(short) == numbers:
            return Trail(array("f", short)[:])
    return Trail(array("d", numbers))


# A fifth of the time that arrays of a tuple take. `struct.pack` would copy its arguments twice.
@lru_cache(maxsize=4096)
def _packer(length: int, kind: str) -> struct.Struct:
    return struct.Struct(f"{length}{kind}")
