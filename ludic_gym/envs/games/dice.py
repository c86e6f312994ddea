"""Rules and scripted players of Liar's Dice."""

from __future__ import annotations

import random
import re
from functools import cache, lru_cache
from math import factorial
from typing import Any, NamedTuple

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.game import Game

FACES = ("ones", "twos", "threes", "fours", "fives", "sixes")
LIAR = "liar"
# Illegal replies in a row after which a player is out.
REFUSALS = 3
# Characters of a reply that are read, from its end.
LONGEST_ACTION = 300
_NUMBERS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    "twenty",
)  # fmt: skip
_COUNTS = {word: i for i, word in enumerate(_NUMBERS, 1)} | {str(i): i for i in range(1, 31)}
_SIDES = {word: i for i, word in enumerate(FACES, 1)} | {str(i): i for i in range(1, 7)}
_SIDES |= {face: i for i, face in enumerate(_NUMBERS[:6], 1)} | {f"{i}s": i for i in range(1, 7)}
_SIDES |= {f"{i}'s": i for i in range(1, 7)}
_BID = re.compile(
    rf"(?<![\w'])({'|'.join(_COUNTS)})(?:\s*x\s*|\s+(?:of |dice of |dice with )?)"
    rf"({'|'.join(sorted(_SIDES, key=len, reverse=True))})(?![\w'])"
)
_CHALLENGE = re.compile(r"\b(?:liar|challenge|i doubt it|i doubt that)\b")


class Bid(NamedTuple):
    """A claim that at least `number` dice of all players show `face`."""

    number: int
    face: int

    def text(self) -> str:
        """The bid in words, such as "3 fives"; also the end of the action."""
        word = FACES[self.face - 1] if self.number > 1 else _NUMBERS[self.face - 1]
        return f"{self.number} {word}"


class Reveal(NamedTuple):
    """The end of a round.

    challenger: player who said liar; -1 for a round that ended with three illegal replies.
    bidder, bid: the challenged bid. matching: number of dice with its face.
    loser: player who lost a die, or who is out.
    """

    hands: tuple[tuple[int, ...], ...]
    challenger: int
    bidder: int
    bid: Bid
    matching: int
    loser: int


class State(NamedTuple):
    """The state of a game.

    seed: decides the rolls of all rounds.
    hands: dice of each player in this round; () for a player who is out.
    bids: players and their bids in this round, the latest last.
    refused: illegal replies of the mover in a row.
    expelled: players who are out for illegal replies.
    ends: the ends of all rounds so far.
    read: by player, the number of ends that were known at the player's last reply.
    """

    seed: int
    round: int
    hands: tuple[tuple[int, ...], ...]
    mover: int
    bids: tuple[tuple[int, Bid], ...] = ()
    refused: int = 0
    expelled: tuple[int, ...] = ()
    ends: tuple[Reveal, ...] = ()
    read: tuple[int, ...] = ()

    @property
    def bid(self) -> Bid | None:
        """The highest bid of the round."""
        return self.bids[-1][1] if self.bids else None

    @property
    def total(self) -> int:
        """Number of dice in play."""
        return sum(map(len, self.hands))


def roll(seed: int, number: int, counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The dice of a round. counts: dice of each player."""
    # From the seed and the round alone: a state needs no generator, and its copies roll equally.
    rng = random.Random(seed * 100 + number)
    return tuple(tuple(rng.choices(range(1, 7), k=count)) for count in counts)


def deal(seed: int, players: int, dice: int, starter: int) -> State:
    """The first round of a game."""
    hands = roll(seed, 0, (dice,) * players)
    return State(seed=seed, round=0, hands=hands, mover=starter, read=(0,) * players)


@lru_cache(maxsize=4096)
def raises(bid: Bid | None, total: int) -> tuple[Bid, ...]:
    """Bids that are higher than the bid, in ascending order; all bids if there is none."""
    every = (Bid(count, face) for count in range(1, total + 1) for face in range(1, 7))
    # Tuples compare by number and then by face, as bids do.
    return tuple(one for one in every if bid is None or one > bid)


@lru_cache(maxsize=4096)
def _legal(bid: Bid | None, total: int) -> tuple[str, ...]:
    bids = tuple(f"bid {one.text()}" for one in raises(bid, total))
    return bids if bid is None else (LIAR, *bids)


def legal_actions(state: State) -> tuple[str, ...]:
    """The challenge, if there is a bid, and all higher bids."""
    return _legal(state.bid, state.total)


def read(text: str) -> str:
    """The action in a reply, in its normal form; the text itself if it has none or several."""
    said = text.strip()[-LONGEST_ACTION:].lower()
    bids = {Bid(_COUNTS[count], _SIDES[face]) for count, face in _BID.findall(said)}
    challenged = _CHALLENGE.search(said) is not None
    # Two different actions are none: the player may have thought aloud.
    if len(bids) + challenged != 1:
        return said
    return LIAR if challenged else f"bid {bids.pop().text()}"


def play(state: State, action: str) -> State:
    """The state after a legal action."""
    reads = (len(state.ends) if seat == state.mover else n for seat, n in enumerate(state.read))
    state = state._replace(refused=0, read=tuple(reads))
    if action != LIAR:
        _, count, face = action.split()
        bids = (*state.bids, (state.mover, Bid(int(count), _SIDES[face])))
        return state._replace(bids=bids, mover=following(state.hands, state.mover))
    bidder, bid = state.bids[-1]
    matching = sum(hand.count(bid.face) for hand in state.hands)
    # A bid that is just met holds: the challenger loses a die.
    loser = state.mover if matching >= bid.number else bidder
    end = Reveal(state.hands, state.mover, bidder, bid, matching, loser)
    dice = tuple(len(hand) - (seat == loser) for seat, hand in enumerate(state.hands))
    return _next_round(state, dice, end)


def refuse(state: State, action: str) -> State:
    """The state after an illegal reply: another try, or the mover is out."""
    if state.refused + 1 < REFUSALS:
        return state._replace(refused=state.refused + 1)
    out = state.mover
    end = Reveal(state.hands, -1, -1, Bid(0, 1), 0, out)
    counts = tuple(0 if seat == out else len(hand) for seat, hand in enumerate(state.hands))
    return _next_round(state._replace(expelled=(*state.expelled, out)), counts, end)


def _next_round(state: State, counts: tuple[int, ...], end: Reveal) -> State:
    hands = roll(state.seed, state.round + 1, counts)
    mover = end.loser if counts[end.loser] else following(hands, end.loser)
    return state._replace(
        round=state.round + 1,
        hands=hands,
        mover=mover,
        bids=(),
        refused=0,
        ends=(*state.ends, end),
    )


def following(hands: tuple[tuple[int, ...], ...], seat: int) -> int:
    """The next player after the seat who has dice."""
    order: list[int] = [*range(seat + 1, len(hands)), *range(seat + 1)]
    return next(other for other in order if hands[other])


def returns(state: State) -> tuple[float, ...] | None:
    """1 for the winner, -1 for the other players; None before the end."""
    left = [seat for seat, hand in enumerate(state.hands) if hand]
    if len(left) > 1:
        return None
    return tuple(1.0 if seat == left[0] else -1.0 for seat in range(len(state.hands)))


def verdict(state: State, player: int) -> tuple[str, bool]:
    """The outcome at the end; to win is a success."""
    won = bool(state.hands[player])
    outcome = "illegal" if player in state.expelled else "win" if won else "loss"
    return outcome, won


# The counting player makes no bid that is less likely to be true, and one of this many lowest ones.
SAFE, CHOICES = 0.55, 4
# Weight of the model "bids name the bidder's most frequent face"; the rest is chance.
TRUST = 0.6
Chances = tuple[float, ...]
"""Probabilities of 0, 1, 2, ... dice."""


@cache
def binomial(dice: int) -> Chances:
    """Probabilities of the number of dice with one face among so many unknown dice."""
    return convolve(binomial(dice - 1), (5 / 6, 1 / 6)) if dice else (1.0,)


def convolve(first: Chances, second: Chances) -> Chances:
    """Probabilities of the sum of two independent numbers."""
    return tuple(np.convolve(first, second).tolist())


@cache
def chances_of_named(dice: int) -> tuple[Chances, Chances]:
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
def believed_chances(rivals: tuple[tuple[int, int], ...]) -> Chances:
    """Probabilities of 0, 1, 2, ... or more dice with a face among rivals.

    rivals: of each, the number of dice, and 1 if it named the face, -1 if another one, else 0.
    """
    total: Chances = (1.0,)
    for dice, claim in rivals:
        chances = binomial(dice)
        if claim:
            model = chances_of_named(dice)[0 if claim > 0 else 1]
            chances = tuple(
                TRUST * m + (1 - TRUST) * c for m, c in zip(model, chances, strict=True)
            )
        total = convolve(total, chances)
    return at_least(total)


def at_least(chances: Chances) -> Chances:
    """Probabilities of each number or more. chances: of each number."""
    return tuple(np.cumsum(chances[::-1])[::-1].tolist())


def among(tails: Chances, count: int) -> float:
    """Probability of `count` or more, by the probabilities of 0, 1, 2, ... or more."""
    return 1.0 if count <= 0 else tails[count] if count < len(tails) else 0.0


def by_counting(state: State, seat: int, bid: Bid) -> float:
    """Probability of the bid for a player who looks at its own dice only."""
    hand = state.hands[seat]
    return among(tail(state.total - len(hand)), bid.number - hand.count(bid.face))


def by_inference(state: State, seat: int) -> list[Chances]:
    """Probabilities of 0, 1, 2, ... or more dice per face, for a player who partly believes bids.

    Each of the six tuples counts all dice, those of the player included.
    """
    latest = {bidder: made.face for bidder, made in state.bids}
    rivals = [
        (len(hand), latest.get(other, 0))
        for other, hand in enumerate(state.hands)
        if other != seat and hand
    ]
    tails = []
    for face in range(1, 7):
        # Sorted: the sum does not depend on the order of rivals, and equal keys are cached.
        claims = sorted((n, 0 if not f else 1 if f == face else -1) for n, f in rivals)
        mine = state.hands[seat].count(face)
        tails.append((1.0,) * mine + believed_chances(tuple(claims)))
    return tails


def counting(game: Game[Any], state: State, rng: np.random.Generator) -> str:
    """One of the lowest bids that are likely true; a challenge where no bid is likelier."""
    lowest = raises(state.bid, state.total)[:12]
    chances = {bid: by_counting(state, state.mover, bid) for bid in lowest}
    safe = [bid for bid in lowest if chances[bid] >= SAFE][:CHOICES]
    if safe:
        return f"bid {pick(rng, safe).text()}"
    best = max(lowest, key=lambda bid: chances[bid], default=None)
    if state.bid and (
        best is None or 1 - by_counting(state, state.mover, state.bid) >= chances[best]
    ):
        return LIAR
    assert best, "without a bid to challenge there are bids to make"
    return f"bid {best.text()}"


def inferring(game: Game[Any], state: State, rng: np.random.Generator) -> str:
    """The action that most likely costs no die of its own."""
    tails = by_inference(state, state.mover)
    values: dict[Bid | None, float] = {}
    if state.bid:
        # None is the challenge.
        values[None] = 1 - among(tails[state.bid.face - 1], state.bid.number)
    next_dice = len(state.hands[following(state.hands, state.mover)])
    for bid in raises(state.bid, state.total)[:18]:
        true = among(tails[bid.face - 1], bid.number)
        # Rough chance that the next player, who holds about a sixth of its own dice of the face,
        # believes the bid.
        by_chance = tail(state.total - next_dice)
        believed = among(by_chance, round(bid.number - next_dice / 6)) ** 2
        values[bid] = true + (1 - true) * believed
    best = max(values.values())
    # A little noise, so that its bids do not tell its dice for certain.
    chosen = pick(rng, [bid for bid, value in values.items() if value >= best - 0.02])
    return f"bid {chosen.text()}" if chosen else LIAR


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
    bluff = max(higher[:18], key=lambda bid: by_counting(state, rival, bid))
    return (f"bid {bluff.text()}",)


def is_true(state: State, bid: Bid) -> bool:
    """True if the dice of all players hold the bid."""
    return sum(hand.count(bid.face) for hand in state.hands) >= bid.number
