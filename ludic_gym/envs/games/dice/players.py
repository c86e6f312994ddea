"""Scripted players of Liar's Dice: by probability, by inference from bids, and an oracle."""

from __future__ import annotations

from functools import cache, lru_cache
from math import factorial
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.game import Game
from ludic_gym.envs.games.dice.rules import LIAR, Bid, State, following, raises

# The counting player makes no bid that is less likely to be true, and one of this many lowest ones.
SAFE, CHOICES = 0.55, 4
# Weight of the model "bids name the bidder's most frequent face"; the rest is chance.
TRUST = 0.6
Chances = tuple[float, ...]
"""Probabilities of 0, 1, 2, ... dice."""


@cache
def binomial(dice: int) -> Chances:
    """Probabilities of the number of dice with one face among so many unknown dice."""
    return convolved(binomial(dice - 1), (5 / 6, 1 / 6)) if dice else (1.0,)


def convolved(first: Chances, second: Chances) -> Chances:
    """Probabilities of the sum of two independent numbers."""
    return tuple(np.convolve(first, second).tolist())


@cache
def named(dice: int) -> tuple[Chances, Chances]:
    """Numbers of dice with the face that a player names, and with another face.

    The player names the face that most of its dice show, one of them at random if several do.
    """
    mine, other = [0.0] * (dice + 1), [0.0] * (dice + 1)
    for counts in _hands(dice, 6):
        chance = factorial(dice) / 6**dice
        for count in counts:
            chance /= factorial(count)
        most = [face for face in range(6) if counts[face] == max(counts)]
        # By symmetry the named face may be any one: given that it is face 0, times 6.
        if 0 in most:
            weight = 6 * chance / len(most)
            mine[counts[0]] += weight
            other[counts[1]] += weight
    return tuple(mine), tuple(other)


def _hands(dice: int, faces: int) -> list[tuple[int, ...]]:
    """All numbers of dice per face."""
    if faces == 1:
        return [(dice,)]
    return [(k, *rest) for k in range(dice + 1) for rest in _hands(dice - k, faces - 1)]


@cache
def tail(dice: int) -> Chances:
    """Probabilities of 0, 1, 2, ... or more dice with one face among unknown dice."""
    return at_least(binomial(dice))


@lru_cache(maxsize=2**16)
def believed(rivals: tuple[tuple[int, int], ...]) -> Chances:
    """Probabilities of 0, 1, 2, ... or more dice with a face among rivals.

    rivals: of each, the number of dice, and 1 if it named the face, -1 if another one, else 0.
    """
    total: Chances = (1.0,)
    for dice, claim in rivals:
        chances = binomial(dice)
        if claim:
            model = named(dice)[0 if claim > 0 else 1]
            chances = tuple(
                TRUST * m + (1 - TRUST) * c for m, c in zip(model, chances, strict=True)
            )
        total = convolved(total, chances)
    return at_least(total)


def at_least(chances: Chances) -> Chances:
    """Probabilities of each number or more. chances: of each number."""
    return tuple(np.cumsum(chances[::-1])[::-1].tolist())


def among(tails: Chances, count: int) -> float:
    """Probability of `count` or more, by the probabilities of 0, 1, 2, ... or more."""
    return 1.0 if count <= 0 else tails[count] if count < len(tails) else 0.0


def counted(state: State, seat: int, bid: Bid) -> float:
    """Probability of the bid for a player who looks at its own dice only."""
    hand = state.hands[seat]
    return among(tail(state.total - len(hand)), bid.number - hand.count(bid.face))


def inferred(state: State, seat: int) -> list[Chances]:
    """Probabilities of 0, 1, 2, ... or more dice per face, for a player who partly believes bids.

    Each of the six tuples counts all dice, those of the player included.
    """
    latest = {bidder: made.face for bidder, made in state.bids}
    rivals = [
        (len(hand), latest.get(other, 0))
        for other, hand in enumerate(state.hands)
        if other != seat and hand
    ]
    found = []
    for face in range(1, 7):
        # Sorted: the sum does not depend on the order of rivals, and equal keys are cached.
        claims = sorted((n, 0 if not f else 1 if f == face else -1) for n, f in rivals)
        mine = state.hands[seat].count(face)
        found.append((1.0,) * mine + believed(tuple(claims)))
    return found


def counting(game: Game[Any], state: State, rng: np.random.Generator) -> str:
    """One of the lowest bids that are likely true; a challenge where no bid is likelier."""
    lowest = raises(state.bid, state.total)[:12]
    chances = {bid: counted(state, state.mover, bid) for bid in lowest}
    safe = [bid for bid in lowest if chances[bid] >= SAFE][:CHOICES]
    if safe:
        return f"bid {pick(rng, safe).text()}"
    best = max(lowest, key=lambda bid: chances[bid], default=None)
    if state.bid and (best is None or 1 - counted(state, state.mover, state.bid) >= chances[best]):
        return LIAR
    assert best, "without a bid to challenge there are bids to make"
    return f"bid {best.text()}"


def inferring(game: Game[Any], state: State, rng: np.random.Generator) -> str:
    """The action that most likely costs no die of its own."""
    tails = inferred(state, state.mover)
    values: dict[Bid | None, float] = {}
    if state.bid:
        # None is the challenge.
        values[None] = 1 - among(tails[state.bid.face - 1], state.bid.number)
    for bid in raises(state.bid, state.total)[:18]:
        true = among(tails[bid.face - 1], bid.number)
        values[bid] = true + (1 - true) * passed(state, bid)
    best = max(values.values())
    # A little noise, so that its bids do not tell its dice for certain.
    chosen = pick(rng, [bid for bid, value in values.items() if value >= best - 0.02])
    return f"bid {chosen.text()}" if chosen else LIAR


def passed(state: State, bid: Bid) -> float:
    """Rough probability that the next player believes the bid: by chance, without any hand."""
    dice = len(state.hands[following(state.hands, state.mover)])
    # A player holds about a sixth of its own dice of the face.
    return among(tail(state.total - dice), round(bid.number - dice / 6)) ** 2


def best_actions(state: State) -> tuple[str, ...]:
    """The action of a player who sees all dice.

    It challenges false bids and makes the highest true one; where a true bid can only be raised by
    a false one, it makes the one that the next player finds likeliest.
    """
    higher = raises(state.bid, state.total)
    if state.bid and not is_true(state, state.bid):
        return (LIAR,)
    if true := [bid for bid in higher if is_true(state, bid)]:
        return (f"bid {true[-1].text()}",)
    if not higher:
        return (LIAR,)
    rival = following(state.hands, state.mover)
    bluff = max(higher[:18], key=lambda bid: counted(state, rival, bid))
    return (f"bid {bluff.text()}",)


def is_true(state: State, bid: Bid) -> bool:
    """True if the dice of all players hold the bid."""
    return sum(hand.count(bid.face) for hand in state.hands) >= bid.number
