"""TextSpace: any Unicode string, in single, synchronous and asynchronous vector environments."""

from __future__ import annotations

import ctypes
import multiprocessing
import string
from collections.abc import Sequence
from multiprocessing.sharedctypes import SynchronizedArray
from types import ModuleType
from typing import Any, TypeAlias, overload

import numpy as np
from gymnasium.spaces import Text
from gymnasium.vector.utils import shared_memory

from ludic_gym.errors import ConfigError, EnvError

_SAMPLED = string.digits + string.ascii_letters + string.punctuation + " "
_LONGEST_SAMPLE = 32
_LENGTH_BYTES = 4
# No character takes more than four bytes in UTF-8.
_CHARACTER_BYTES = 4

SharedBytes: TypeAlias = "SynchronizedArray[ctypes.c_uint8]"


class ByLength:
    """Mixin of spaces that are equal if their `max_length` is, and have no fixed size."""

    max_length: int

    @property
    def is_np_flattenable(self) -> bool:
        """False: there is no array of fixed size."""
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByLength) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))


class TextSpace(ByLength, Text):
    """Every Unicode string of at most `max_length` characters, the empty one included.

    A `gymnasium.spaces.Text` whose character set is used by `sample` only: 1 to 32 printable ASCII
    characters. Membership depends on the length only and costs O(1).

    >>> TextSpace(10).contains("short"), TextSpace(10).contains("x" * 11)
    (True, False)
    """

    def __init__(self, max_length: int, *, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=_SAMPLED, seed=seed)

    def contains(self, x: object) -> bool:
        """True if `x` is a string of at most `max_length` characters."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: object = None, probability: object = None) -> str:
        """A short printable string. Raises ConfigError for masks: texts have no finite choices."""
        if mask is not None or probability is not None:
            raise ConfigError(
                f"{self} cannot sample with a mask or probabilities, got mask={mask!r}, "
                f"probability={probability!r}; draw from the env's legal_actions() instead"
            )
        length = int(self.np_random.integers(1, min(_LONGEST_SAMPLE, self.max_length) + 1))
        # One draw of codes is much faster than Text's own choice from the character set.
        codes = self.np_random.integers(32, 127, size=length, dtype=np.uint8)
        return codes.tobytes().decode("ascii")


# Vector environments reject sub-environments with different spaces, so all of ours share this one.
TEXT = TextSpace(2**16)


class TextObservation(str):
    """A string with a dtype, which PettingZoo's `api_test` requires of every observation."""

    __slots__ = ()
    dtype = TEXT.dtype


class SharedTexts(Sequence[str]):
    """The newest texts of the workers of an AsyncVectorEnv; a deep copy is a plain tuple."""

    def __init__(self, space: TextSpace, memory: SharedBytes, count: int) -> None:
        self._buffer = memoryview(memory.get_obj()).cast("B")
        self._slot_bytes = _slot_bytes(space)
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._count)))
        start = range(self._count)[index] * self._slot_bytes + _LENGTH_BYTES
        length = int.from_bytes(self._buffer[start - _LENGTH_BYTES : start], "little")
        # A copy, because the worker writes its next text into the same place.
        return bytes(self._buffer[start : start + length]).decode("utf-8", "surrogatepass")

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[str, ...]:
        return tuple(self)


def _slot_bytes(space: TextSpace) -> int:
    return _LENGTH_BYTES + _CHARACTER_BYTES * space.max_length


@shared_memory.create_shared_memory.register(TextSpace)
def _create(space: TextSpace, n: int = 1, ctx: ModuleType = multiprocessing) -> SharedBytes:
    array: SharedBytes = ctx.Array(ctypes.c_uint8, n * _slot_bytes(space))
    return array


@shared_memory.read_from_shared_memory.register(TextSpace)
def _read(space: TextSpace, shared_memory: SharedBytes, n: int = 1) -> SharedTexts:
    return SharedTexts(space, shared_memory, n)


@shared_memory.write_to_shared_memory.register(TextSpace)
def _write(space: TextSpace, index: int, value: str, shared_memory: SharedBytes) -> None:
    # The memory has a fixed size: a longer text would overwrite the next environment's.
    if len(value) > space.max_length:
        raise EnvError(f"an observation of {len(value)} characters is not in {space}; shorten it")
    # A Python string may hold lone surrogates, which strict UTF-8 rejects.
    data = value.encode("utf-8", "surrogatepass")
    start = index * _slot_bytes(space) + _LENGTH_BYTES
    buffer = memoryview(shared_memory.get_obj()).cast("B")
    buffer[start - _LENGTH_BYTES : start] = len(data).to_bytes(_LENGTH_BYTES, "little")
    buffer[start : start + len(data)] = data


def own_copy(space: TextSpace) -> TextSpace:
    """An equal space with its own random generator, for agents whose samples must not mix."""
    return type(space)(space.max_length)
