"""Random number generators of seeds that follow each other, made ten times as fast as one by one.

Nearly all the time that a generator takes is that of `SeedSequence`, which expands its seed to the
state of PCG64. Here 256 seeds are expanded at once, in the arithmetic that NumPy guarantees not to
change (O'Neill's `seed_seq_fe128`).
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from numpy.random.bit_generator import ISpawnableSeedSequence
from numpy.typing import NDArray

Words = NDArray[np.uint32]
States = NDArray[np.uint64]
_BLOCK = 256
_POOL = 4
_WORD = 2**32
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF = np.uint32(16)
# By block of seeds: the states of all, or the only seed that was needed so far. 8 kB per block.
_known: dict[int, States | int] = {}
_MOST_KNOWN = 256


class ExpandedSeed(ISpawnableSeedSequence):
    """`np.random.SeedSequence(seed)` whose state for PCG64 is known; copies are NumPy's own."""

    def __init__(self, seed: int, state: NDArray[np.uint64]) -> None:
        self._seed = seed
        self._state = state
        self._whole: np.random.SeedSequence | None = None

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:  # noqa: ANN401
        """`n_words` words of the type."""
        if n_words == len(self._state) and dtype is np.uint64:
            return self._state
        return self._sequence().generate_state(n_words, dtype)

    # NumPy's types want sequences of this class; those of its own are what a caller expects.
    def spawn(self, n_children: int) -> list[Any]:
        """Sequences of further streams, as of `SeedSequence.spawn`."""
        return self._sequence().spawn(n_children)

    def __getattr__(self, name: str) -> object:
        # Never for a name of this class: its own attributes exist.
        return getattr(self._sequence(), name)

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self._sequence().__reduce__()

    def _sequence(self) -> np.random.SeedSequence:
        if self._whole is None:
            self._whole = np.random.SeedSequence(self._seed)
        return self._whole


def checked_seed(seed: int) -> int:
    """The seed itself. Raises gymnasium's Error for one that is no int, or negative."""
    if not isinstance(seed, int) or seed < 0:
        # It raises: its message is the one that users of Gymnasium know.
        seeding.np_random(seed)
    return seed


def generator(seed: int) -> np.random.Generator:
    """The generator of `gymnasium.utils.seeding.np_random(seed)`, with the same stream."""
    if not 0 <= seed < _WORD:
        return seeding.np_random(seed)[0]
    states = _states(seed)
    if states is None:
        return seeding.np_random(seed)[0]
    known = ExpandedSeed(seed, states[seed % _BLOCK])
    # NumPy takes any ISeedSequence, which its types do not say.
    return np.random.Generator(np.random.PCG64(known))  # type: ignore[arg-type]


def _states(seed: int) -> States | None:
    """The states [256, 4] of the seed's block; None for the first seed of a block."""
    block = seed // _BLOCK
    known = _known.get(block)
    if isinstance(known, np.ndarray):
        return known
    # A block costs as much as ten seeds, and most seeds that are far apart come alone.
    if known is None or known == seed:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[block] = seed
        return None
    states = _known[block] = expanded(
        np.arange(_BLOCK, dtype=np.uint32) + np.uint32(block * _BLOCK)
    )
    return states


def expanded(seeds: Words) -> States:
    """State of PCG64 for each seed, [N, 4]: that of `SeedSequence(seed).generate_state(4)`.

    >>> expanded(np.array([7], np.uint32))[0] == np.random.SeedSequence(7).generate_state(4, "u8")
    array([ True,  True,  True,  True])
    """
    # The constants and the order of `seed_seq_fe128`, whose results must not differ by a bit.
    mixing = _Hash(0x43B0D7E5, 0x931E8875)
    pool = [mixing(word) for word in (seeds, *[np.zeros_like(seeds)] * (_POOL - 1))]
    for source, target in permutations(range(_POOL), 2):
        pool[target] = _folded(_LEFT * pool[target] - _RIGHT * mixing(pool[source]))
    drawing = _Hash(0x8B51F9DD, 0x58F38DED)
    # Twice: four states of 64 bits take eight words, and the pool has four.
    words = np.stack([drawing(word) for word in pool + pool], axis=1)
    return words.astype("<u4").view("<u8").astype(np.uint64)


class _Hash:
    """A hash of words whose constant changes with every call."""

    def __init__(self, first: int, factor: int) -> None:
        self._constant = first
        self._factor = factor

    def __call__(self, words: Words) -> Words:
        before = np.uint32(self._constant)
        self._constant = self._constant * self._factor % _WORD
        return _folded((words ^ before) * np.uint32(self._constant))


def _folded(words: Words) -> Words:
    return words ^ (words >> _HALF)
