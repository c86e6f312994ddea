"""What belongs to the whole process, lent to packages that know no other: generators, stdout."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np

# The generators belong to the process: two environments in two threads take turns.
_TURN = threading.RLock()
State = tuple[Any, Any]


def seeded_state(seed: int) -> State:
    """The state that the generators have after being seeded with the same 32 bits each."""
    seed %= 2**32
    return random.Random(seed).getstate(), np.random.RandomState(seed).get_state(legacy=False)


@contextmanager
def lent_generators(state: State) -> Iterator[list[State]]:
    """Python's and NumPy's global generators in that state, and as they were before afterwards.

    Prints go nowhere meanwhile. Yields a list that holds the state that the generators are left
    in, once the context has ended.
    """
    left: list[State] = []
    with _TURN:
        before = _get()
        _set(state)
        try:
            with redirect_stdout(io.StringIO()):
                yield left
        finally:
            left.append(_get())
            _set(before)


def _get() -> State:
    return random.getstate(), np.random.get_state(legacy=False)


def _set(state: State) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
