"""Words and numbers of Terminal's generated files."""

from __future__ import annotations

import numpy as np

from ludic_gym.envs.core.base import between
from ludic_gym.envs.worlds.quests.names import shuffled

WORDS = (
    "amber", "birch", "cedar", "delta", "eagle", "flint", "grape", "hazel", "ivory", "jade",
    "koala", "lemon", "maple", "north", "olive", "pearl", "quail", "river", "stone", "tulip",
    "umber", "viola", "wheat", "yield", "zebra", "acorn", "brook", "cloud", "dune", "frost",
)  # fmt: skip


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Different words."""
    return shuffled(rng, WORDS)[:count]


def numbers(rng: np.random.Generator, count: int, low: int = 1, high: int = 99) -> list[int]:
    """Numbers, which may repeat."""
    return [between(rng, low, high) for _ in range(count)]


def lines(items: list[str] | list[int]) -> str:
    """The items as lines of a file."""
    return "".join(f"{item}\n" for item in items)


def sentence(rng: np.random.Generator) -> str:
    """A line of three to six words."""
    return " ".join(words(rng, between(rng, 3, 6)))
