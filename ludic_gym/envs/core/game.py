"""Two-player games as pure functions over an immutable state, and exact play for small ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, SupportsIndex, TypeVar

import numpy as np

from ludic_gym.envs.core.base import pick

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Game(Generic[S]):
    """The rules of a game for the players 0 and 1.

    initial: a first state; any chance comes from the generator.
    mover: whose turn it is.
    legal_actions: what the mover may do; nothing at all, before the end, where any text is.
    play: the state after a legal action.
    returns: what each player has won, from -1 to 1, or None while the game goes on.
    observation: the state as a player sees it.
    system_prompt: the rules and the reply format, for a player.
    best_actions: the actions of perfect play, the one that also does best against a player who
        moves at random first. Raises NoOracle where they are not known.
    read: what a text means as an action, legal or not; without white space around it by default.
    verdict: what the end is called for a player, and whether it is a success; by default "win",
        "draw" or "loss" by the player's return, of which a win is one.
    made_by: makes this game, for copies and pickles; None for a game that is a module's constant.
    """

    name: str
    initial: Callable[[np.random.Generator], S]
    mover: Callable[[S], int]
    legal_actions: Callable[[S], tuple[str, ...]]
    play: Callable[[S, str], S]
    returns: Callable[[S], tuple[float, float] | None]
    observation: Callable[[S, int], str]
    system_prompt: Callable[[int], str]
    best_actions: Callable[[S], tuple[str, ...]]
    read: Callable[[str], str] = str.strip
    verdict: Callable[[S, int], tuple[str, bool]] | None = None
    made_by: Callable[[], Game[S]] | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # Its functions may be local ones, which cannot be pickled.
        return (self.made_by, ()) if self.made_by else object.__reduce_ex__(self, protocol)

    def is_allowed(self, state: S, action: str) -> bool:
        """Whether the mover may do what was read."""
        legal = self.legal_actions(state)
        return not legal or action in legal

    def end(self, state: S, player: int) -> tuple[str, bool]:
        """What the end is called for the player, and whether it is a success."""
        if self.verdict is not None:
            return self.verdict(state, player)
        result = self.returns(state)
        assert result is not None, "the game is over"
        outcome = outcome_of(result[player])
        return outcome, outcome == "win"


@dataclass(frozen=True, slots=True)
class Solution(Generic[S]):
    """What perfect play comes to.

    value: what player 0 gets from a state when both play perfectly.
    best_actions: see `Game`.
    """

    value: Callable[[S], float]
    best_actions: Callable[[S], tuple[str, ...]]


def random_action(game: Game[S], state: S, rng: np.random.Generator) -> str:
    """Any legal action, each as likely."""
    return pick(rng, game.legal_actions(state))


def perfect_action(game: Game[S], state: S, rng: np.random.Generator) -> str:
    """Any action of perfect play, each as likely."""
    return pick(rng, game.best_actions(state))


def caseless(text: str) -> str:
    """The text in lower case, without white space around it: how words are read as actions."""
    return text.strip().lower()


def outcome_of(reward: float) -> str:
    """What a player's return is called: "win", "draw" or "loss"."""
    return "win" if reward > 0 else "loss" if reward < 0 else "draw"


def solved(
    *,
    mover: Callable[[S], int],
    legal_actions: Callable[[S], tuple[str, ...]],
    play: Callable[[S, str], S],
    returns: Callable[[S], tuple[float, float] | None],
) -> Solution[S]:
    """Perfect play of a zero-sum game that is small enough to be searched to its ends.

    Every state is worked out once, when it is first asked for.
    """

    @cache
    def value(state: S) -> float:
        result = returns(state)
        if result is not None:
            return result[0]
        values = [value(play(state, action)) for action in legal_actions(state)]
        return min(values) if mover(state) else max(values)

    @cache
    def chance(state: S, player: int) -> float:
        """How likely `player` wins by its first best actions against random ones."""
        result = returns(state)
        if result is not None:
            return float(result[player] > 0)
        if mover(state) == player:
            return chance(play(state, best_actions(state)[0]), player)
        replies = legal_actions(state)
        return sum(chance(play(state, action), player) for action in replies) / len(replies)

    @cache
    def best_actions(state: S) -> tuple[str, ...]:
        player = mover(state)
        after = {action: play(state, action) for action in legal_actions(state)}
        best = (min if player else max)(value(state) for state in after.values())
        perfect = [action for action in after if value(after[action]) == best]
        return tuple(sorted(perfect, key=lambda action: -chance(after[action], player)))

    return Solution(value, best_actions)
