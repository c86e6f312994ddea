"""Levels of difficulty, and train and test splits of generated tasks."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Literal, TypeVar

from envs_registry.catalog import CATALOG, EnvEntry
from ludic_gym.errors import ConfigError

LEVELS = ("easy", "medium", "hard")
_ENTRIES: Mapping[str, EnvEntry] = {entry.gym: entry for entry in CATALOG}


def level_arguments(entry: EnvEntry, level: str | int) -> dict[str, Any]:
    """Arguments of an environment at a level.

    level: "easy", "medium" or "hard" for the first, the middle and the last value of its levels in
        the catalogue, or the number of a value, from 1.
    Raises ConfigError for another level, and for an environment without levels.
    """
    argument, values = entry.levels
    if not values:
        raise ConfigError(f"{entry.id} has no levels: {entry.no_levels}; got level={level!r}")
    if argument == "level" and level not in LEVELS:
        # An argument of that name checks its own values.
        return {"level": level}
    if level in LEVELS:
        place = (0, len(values) // 2, len(values) - 1)[LEVELS.index(str(level))]
    else:
        # From a command line a number is a text.
        number = int(level) if str(level).isdecimal() else 0
        if not 1 <= number <= len(values):
            raise ConfigError(
                f"level of {entry.id} is one of {', '.join(LEVELS)}, or 1 to {len(values)} for "
                f"{argument}={'|'.join(map(str, values))}; got {level!r}"
            )
        place = number - 1
    return {argument: values[place]}


def with_levels(init: Callable[..., None]) -> Callable[..., None]:
    """The `__init__` of an environment that also takes the keyword `level`.

    The argument of the level may be given too if it has the same value; otherwise ConfigError.
    """
    has_level = "level" in signature(init).parameters

    @functools.wraps(init)
    def levelled(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (those of init)
        entry = _ENTRIES.get(f"{type(self).__module__}:{type(self).__qualname__}")
        # A class that is not in the catalogue has levels of its own, or none.
        if "level" in kwargs and entry is not None and (entry.levels[1] or not has_level):
            level = kwargs.pop("level")
            for name, value in level_arguments(entry, level).items():
                if kwargs.setdefault(name, value) != value:
                    raise ConfigError(
                        f"level={level!r} of {entry.id} is {name}={value!r}, but "
                        f"{name}={kwargs[name]!r} is given too; leave one of them out"
                    )
        init(self, *args, **kwargs)

    return levelled


T = TypeVar("T")

Level = Literal["easy", "medium", "hard"]
"""Difficulty of generated tasks."""

Split = Literal["all", "train", "test"]
"""Part of the generated tasks."""

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


def draw_in_split(draw: Callable[[], T], split: str, name: Callable[[T], str] = repr) -> T:
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
