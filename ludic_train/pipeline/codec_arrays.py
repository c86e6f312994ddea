"""Arrays of rows as bytes and runs, and back."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from ludic_train.errors import BadGroup

Array = NDArray[Any]
# Fits the int32 of the arrays it goes to; msgspec refuses other numbers while it decodes.
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
# Pairs of a number and the number of tokens in a row that have it.
Runs = list[tuple[Count, Count]]


def runs_of(numbers: Array) -> Runs:
    """Runs of equal numbers: [4, 4, 4, 5] is [(4, 3), (5, 1)]."""
    return [(number, len(list(same))) for number, same in groupby(numbers.tolist())]


def array_of(raw: bytes, dtype: str, name: str) -> Array:
    """The bytes as numbers, without a copy; read-only, like the bytes."""
    kind = np.dtype(dtype)
    if len(raw) % kind.itemsize:
        raise BadGroup(f"{name} has {len(raw)} bytes, not a multiple of {kind.itemsize}")
    return np.frombuffer(raw, kind)


def bits_of(raw: bytes, length: int) -> NDArray[np.bool_]:
    """The first `length` bits as booleans. Raises BadGroup where the bytes have more, or fewer."""
    if len(raw) != (length + 7) // 8:
        raise BadGroup(f"action_mask has {len(raw)} bytes for {length} tokens")
    # Else two messages could be the same group, and a token after the end would be lost silently.
    if length % 8 and raw[-1] >> length % 8:
        raise BadGroup(f"action_mask marks tokens after the {length} that there are")
    # Each byte is 0 or 1, which is how numpy stores booleans: no copy.
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=length, bitorder="little")
    return bits.view(np.bool_)


def repeated(runs: Runs, sampled: int, name: str) -> Array | int:
    """Values of a row's sampled tokens, [M], or the one number that all of them have."""
    # Before anything is allocated: a few bytes can claim runs of 2**31 tokens.
    if (claimed := sum(length for _, length in runs)) != sampled:
        raise BadGroup(f"{name} has {claimed} values for {sampled} sampled tokens")
    # Nearly every row is of one step and one version, and an array costs more than its numbers.
    if len(runs) == 1:
        return runs[0][0]
    numbers, lengths = np.array(runs, np.int32).reshape(-1, 2).T
    return numbers.repeat(lengths)


def spread(values: Array | int, mask: NDArray[np.bool_], off_mask: int, dtype: DTypeLike) -> Array:
    """A stream [T] for all tokens of a row, from its values for the sampled ones."""
    whole = np.full(len(mask), off_mask, dtype)
    whole[mask] = values
    return whole
