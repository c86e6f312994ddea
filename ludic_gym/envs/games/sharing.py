"""Division of items between two players: values, shares, and efficient and fair shares."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from ludic_gym.envs.core.base import pick

ITEMS = ("book", "hat", "ball")
# Value of all items together, for each player.
TOTAL = 10
# Least value of a good deal.
FAIR = 5
# Number of each item.
Share = tuple[int, ...]
_COUNTS = tuple(c for c in product(range(1, 5), repeat=len(ITEMS)) if 5 <= sum(c) <= 7)
_PIECE = re.compile(r"(\d{1,2})\s*([a-z]+)")
_NUMBERS = re.compile(r"\s*(\d{1,2})[\s,]+(\d{1,2})[\s,]+(\d{1,2})\s*")


class Scenario(NamedTuple):
    """The number of each item, and each player's value of one of each."""

    counts: Share
    values: tuple[Share, Share]


def any_scenario(rng: np.random.Generator) -> Scenario:
    """A random scenario of five to seven items that is worth negotiating (`is_interesting`)."""
    while True:
        counts = pick(rng, _COUNTS)
        values = pick(rng, values_of(counts)), pick(rng, values_of(counts))
        scenario = Scenario(counts, values)
        if is_interesting(scenario):
            return scenario


@lru_cache(maxsize=2**14)
def is_interesting(scenario: Scenario) -> bool:
    """True if the values differ, no item is worthless to both, and a deal gives `FAIR` to each."""
    first, second = scenario.values
    if first == second or not all(a or b for a, b in zip(first, second, strict=True)):
        return False
    return min(points(scenario, fair_share(scenario))) >= FAIR


@cache
def values_of(counts: Share) -> tuple[Share, ...]:
    """All values of single items for which the items are worth `TOTAL` together."""
    each = product(*(range(TOTAL // count + 1) for count in counts))
    return tuple(values for values in each if worth(counts, values) == TOTAL)


def worth(share: Share, values: Share) -> int:
    """The value of the share."""
    return sum(n * value for n, value in zip(share, values, strict=True))


def points(scenario: Scenario, share: Share) -> tuple[int, int]:
    """The values for both players if the first one takes the share."""
    first, second = scenario.values
    return worth(share, first), worth(rest_of(scenario.counts, share), second)


@cache
def shares(counts: Share) -> tuple[Share, ...]:
    """All shares of these items."""
    return tuple(product(*(range(count + 1) for count in counts)))


@lru_cache(maxsize=2**14)
def is_efficient(scenario: Scenario, share: Share) -> bool:
    """True if no other deal is better for one player and no worse for the other (Pareto)."""
    own = points(scenario, share)
    others = (points(scenario, other) for other in shares(scenario.counts))
    return not any(a >= own[0] and b >= own[1] and (a, b) != own for a, b in others)


@lru_cache(maxsize=2**14)
def fair_share(scenario: Scenario) -> Share:
    """The first player's share in the efficient deal with the highest minimum of both values."""

    def rank(share: Share) -> tuple[int, int]:
        both = points(scenario, share)
        return min(both), sum(both)

    return max(shares(scenario.counts), key=rank)


def parsed_share(text: str, counts: Share) -> Share | None:
    """The share in "1 book, 2 hats" or "1 2 0"; None if there is none or it exceeds the items."""
    if numbers := _NUMBERS.fullmatch(text):
        share = tuple(int(n) for n in numbers.groups())
    else:
        pieces = _PIECE.findall(text.casefold())
        named = {name.removesuffix("s"): int(n) for n, name in pieces}
        # A name that occurs twice has no single meaning.
        if not pieces or len(named) < len(pieces) or not set(named) <= set(ITEMS):
            return None
        # An item that is not named is none of it.
        share = tuple(named.get(item, 0) for item in ITEMS)
    return share if all(k <= n for k, n in zip(share, counts, strict=True)) else None


def rest_of(counts: Share, share: Share) -> Share:
    """The items that are left."""
    return tuple(n - k for n, k in zip(counts, share, strict=True))


def in_words(share: Share) -> str:
    """The share as "1 book, 2 hats", or "nothing"."""
    named = zip(share, ITEMS, strict=True)
    return ", ".join(f"{n} {item}{'s' * (n > 1)}" for n, item in named if n) or "nothing"
