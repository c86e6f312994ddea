"""Other packages: their imports, and the global generators that they draw from."""

from __future__ import annotations

import io
import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ludic_gym.errors import ConfigError

# The generators belong to the process: environments on different threads use them in turn.
_TURN = threading.RLock()
State = tuple[Any, Any]


def needed(module: str, *, install: str) -> ModuleType:
    """Import the module. Raises ConfigError with the command to install it, if it is missing."""
    try:
        # Other packages warn and print at import, which would break `filterwarnings = error`.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"this environment needs {error.name or module}: pip install '{install}'"
        ) from error


def seeded_state(seed: int) -> State:
    """The states of both generators after seeding with the lower 32 bits."""
    seed %= 2**32
    return random.Random(seed).getstate(), np.random.RandomState(seed).get_state(legacy=False)


@contextmanager
def lent_generators(state: State) -> Iterator[list[State]]:
    """Set Python's and NumPy's global generators to a state, and restore them afterwards.

    Prints are discarded meanwhile. Yields a list, which after the block has the generators' new
    state.
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
