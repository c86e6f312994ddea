"""The global random generators that other packages draw from."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np

# The generators belong to the process: environments on different threads use them in turn.
_TURN = threading.RLock()
State = tuple[Any, Any]


def seeded_state(seed: int) -> State:
    """The states of both generators, Python's and NumPy's, seeded with the lower 32 bits."""
    # NumPy's old generator takes no larger seeds.
    seed %= 2**32
    return random.Random(seed).getstate(), np.random.RandomState(seed).get_state(legacy=False)


@contextmanager
def lent_generators(state: State) -> Iterator[list[State]]:
    """Set Python's and NumPy's global generators to a state, and restore them afterwards.

    Prints are discarded meanwhile. Yields a list, which after the block has the generators' new
    state. Other threads wait at the block, so that none draws from a lent state.

    >>> with lent_generators(seeded_state(7)) as left:
    ...     first = random.random()
    >>> with lent_generators(left[0]):
    ...     second = random.random()
    >>> same = random.Random(7)
    >>> (first, second) == (same.random(), same.random())
    True
    """
    left: list[State] = []
    with _TURN:
        before = _get()
        _set(state)
        try:
            with redirect_stdout(io.StringIO()):
                yield left
        finally:
            # In `finally`: a game that raised has drawn too, and its next turn continues from
            # there.
            left.append(_get())
            _set(before)


def _get() -> State:
    return random.getstate(), np.random.get_state(legacy=False)


def _set(state: State) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
