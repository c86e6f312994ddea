"""Facts of episodes that travel to other programs: keys of tasks, and plain values of infos."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ludic_gym.types import Task

# Longer texts of an info hold nothing that credit could use, and would travel with each group.
LONGEST_INFO_TEXT = 200
# That of `json.dumps(..., default=str)`, which would make one for every task.
_ENCODER = json.JSONEncoder(default=str)


def task_key(task: Task) -> str:
    """Key of a task, 16 hex digits: equal when the same task comes again."""
    return _hash(_text([task.env_id, dict(task.kwargs), task.seed, task.options]))


def env_key(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """Key of an environment with its arguments in any order; a list is equal to a tuple."""
    return _sorted_key(_text([env_id, dict(kwargs)]))


# Most rollouts of a run share their environment.
@lru_cache(maxsize=1024)
def _sorted_key(text: str) -> str:
    env_id, kwargs = json.loads(text)
    return _hash(_text([env_id, dict(sorted(kwargs.items()))]))


def _text(facts: Sequence[Any]) -> str:
    return _ENCODER.encode(facts)


def _hash(text: str) -> str:
    # A hash, because keys travel to actors and into checkpoints, and arguments may be long.
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=8).hexdigest()


def plain_info(info: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """The numbers, flags and short texts of an info."""
    found = dict[str, bool | int | float | str]()
    for name, value in info.items():
        # NumPy's scalars become Python's, which any wire format knows.
        plain = value.item() if isinstance(value, np.generic) else value
        if _is_plain(plain) and _is_text(name):
            found[name] = plain
    return found


def _is_plain(value: object) -> bool:
    """True for values that every wire format can carry: integers have 64 bits."""
    if isinstance(value, str):
        return len(value) <= LONGEST_INFO_TEXT and _is_text(value)
    return isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _is_text(value: str) -> bool:
    """False for halves of surrogate pairs, which no encoding has bytes for."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
