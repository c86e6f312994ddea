"""Levels of difficulty, and train and test splits of generated tasks."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Literal, TypeVar

from ludic_gym.errors import ConfigError

T = TypeVar("T")

Level = Literal["easy", "medium", "hard"]
"""Difficulty of generated tasks."""

Split = Literal["all", "train", "test"]
"""Part of the generated tasks."""

LEVELS = ("easy", "medium", "hard")
SPLITS = ("all", "train", "test")
# One task in five is in the split "test".
HELD_OUT_EVERY = 5
# Draws of no task of a split are (4/5)^10,000 likely unless it has none.
MOST_DRAWS = 10_000


def in_test(task: str) -> bool:
    """True if the task is in the split "test"; the same in every process.

    task: a text that equal tasks have in common, such as the repr of a frozen dataclass.
    """
    # Python's own hash of a text differs between processes.
    return zlib.crc32(task.encode()) % HELD_OUT_EVERY == 0


def drawn(draw: Callable[[], T], split: str, name: Callable[[T], str] = repr) -> T:
    """The first drawn task that is in the split.

    The split is a property of the task, not of the seed, so that no task is in both "train" and
    "test", whatever the seeds.

    split: one of `SPLITS`. name: the text by which a task is assigned to a split.
    Raises ConfigError if no task is in the split.
    """
    if split == "all":
        return draw()
    for task in (draw() for _ in range(MOST_DRAWS)):
        if in_test(name(task)) == (split == "test"):
            return task
    raise ConfigError(f"no task is in split={split!r}; choose arguments that allow more tasks")
