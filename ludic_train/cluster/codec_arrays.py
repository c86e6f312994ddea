"""Arrays of rows as bytes and runs, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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


def joined(arrays: Sequence[Array], dtype: DTypeLike) -> Array:
    """The arrays as one; [0] for none."""
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


def runs_of(numbers: Array) -> Runs:
    """Runs of equal numbers: [4, 4, 4, 5] is [(4, 3), (5, 1)]."""
    if not len(numbers):
        return []
    bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    lengths = [end - start for start, end in pairwise(bounds)]
    return list(zip(numbers[bounds[:-1]].tolist(), lengths, strict=True))


def joined_runs(found: Sequence[Runs]) -> Runs:
    """The runs one after another; one run where all are of the same number."""
    runs = [run for each in found for run in each]
    numbers = {number for number, _ in runs}
    return [(numbers.pop(), sum([count for _, count in runs]))] if len(numbers) == 1 else runs


def array_of(raw: bytes, dtype: np.dtype[Any], name: str) -> Array:
    """The bytes as numbers, without a copy; read-only, like the bytes."""
    if len(raw) % dtype.itemsize:
        raise BadGroup(f"{name} has {len(raw)} bytes, not a multiple of {dtype.itemsize}")
    return np.frombuffer(raw, dtype)


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
    """Values of the sampled tokens, [M]; a number where all have the same one."""
    # Before anything is allocated: a few bytes can claim runs of 2**31 tokens.
    if (claimed := sum(length for _, length in runs)) != sampled:
        raise BadGroup(f"{name} has {claimed} values for {sampled} sampled tokens")
    # Nearly every group is of one version, and of one step in each rollout.
    if len(runs) == 1 and sampled:
        return runs[0][0]
    numbers, lengths = np.array(runs, np.int32).reshape(-1, 2).T
    return numbers.repeat(lengths)


def off_mask(mask: NDArray[np.bool_]) -> NDArray[np.int32]:
    """-1 for tokens off the mask, 0 for the others."""
    return np.subtract(mask, 1, dtype=np.int32)


def spread(counts: Array | int, mask: NDArray[np.bool_], off: NDArray[np.int32]) -> Array:
    """A stream [T] from the numbers of its sampled tokens, which are 0 or more; -1 for the others.

    counts: int32 [M], or a number if all have the same one. off: of `off_mask`.
    """
    if isinstance(counts, int):
        # -1 has all bits, so it stays; three times as fast as an assignment to masked places.
        return np.bitwise_or(off, counts) if counts else off
    whole = off.copy()
    whole[mask] = counts
    return whole


def highest(numbers: Array) -> int:
    """The largest of whole numbers; -1 for none."""
    # Its place and then its value: a third of the time of a reduction of few numbers.
    return int(numbers.item(numbers.argmax())) if len(numbers) else -1
