"""Rules of games as pure functions of an immutable state, and perfect play."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, SupportsIndex, TypeVar

import numpy as np

from ludic_gym.envs.core.base import checked_choice, pick
from ludic_gym.reader import Reading, read_reply, without_thought

# A feedback lists the legal actions if there are at most so many.
_FEW = 12


def refusal(legal: Sequence[str], reply_form: str = "") -> str:
    """Feedback on an illegal action: the legal ones if they are few, else the form of a reply."""
    if 0 < len(legal) <= _FEW:
        return f"That is not a legal action. Legal actions: {', '.join(legal)}."
    form = f" Reply with just {reply_form}." if reply_form else ""
    return f"That is not a legal action.{form}"


def one_line(text: str, longest: int) -> str:
    """The text on one line of at most `longest` characters, without unprintable ones.

    Use it for messages between players, which must not look like lines of the environment.
    """
    # The text is cut first: a message of megabytes must not cost more than a short one.
    printed = "".join(c if c.isprintable() else " " for c in text[: 10 * longest])
    return " ".join(printed.split())[:longest]


S = TypeVar("S", bound=Hashable)

# Strategy of a scripted player: its action in a state in which it moves.
Opponent = Callable[["Game[Any]", Any, np.random.Generator], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Game(Generic[S]):
    """The rules of a game in turns, for the players 0, 1, ...

    Attributes:
        name: title, from which PettingZoo's name is made.
        initial: a first state, drawn from the generator.
        mover: the player to move.
        legal_actions: legal actions of the mover; () in a state in which any text is legal.
        play: the state after a legal action.
        returns: each player's return, from -1 to 1; None before the end.
        observation: the state as a player sees it.
        system_prompt: the rules and the reply format for a player.
        best_actions: actions of perfect play, the one that wins most often against random replies
            first. Raises NoOracle if they are not known.
        read: the action that a text spells, legal or not; by default the text without surrounding
            white space. `ludic_gym.reader` finds the text in a reply.
        read_in: as `read`, for games in which the state decides how a text is read.
        verdict: a player's outcome and success at the end; by default "win", "draw" or "loss" by
            the return, and a win is a success.
        players: number of players.
        refused: the state after an illegal action of the mover; by default that action loses the
            game, which only a game of two players allows.
        made_by: function that makes this game, for copies and pickles; None for a constant of a
            module.

    Take 1 or 2 matches, and the last one wins; a state is (matches, player to move):

    >>> from ludic_gym import OnePlayerEnv
    >>> rules = {
    ...     "mover": lambda state: state[1],
    ...     "legal_actions": lambda state: ("1", "2")[: state[0]],
    ...     "play": lambda state, action: (state[0] - int(action), 1 - state[1]),
    ...     "returns": lambda state: None if state[0] else ((-1.0, 1.0), (1.0, -1.0))[state[1]],
    ... }
    >>> class MatchesEnv(OnePlayerEnv):
    ...     game = Game(
    ...         name="Matches",
    ...         initial=lambda rng: (4, 0),
    ...         observation=lambda state, player: f"Matches left: {state[0]}.",
    ...         system_prompt=lambda player: "Take 1 or 2 matches. Who takes the last one wins.",
    ...         best_actions=solved(**rules),
    ...         **rules,
    ...     )
    >>> env = MatchesEnv(opponent="perfect")
    >>> env.reset(seed=1)[0], env.oracle_action()
    ('Matches left: 4.', '1')
    >>> observation, reward, terminated, truncated, info = env.step("2")
    >>> observation, info["outcome"], reward
    ('Matches left: 0.', 'loss', -1.0)
    """

    name: str
    initial: Callable[[np.random.Generator], S]
    mover: Callable[[S], int]
    legal_actions: Callable[[S], tuple[str, ...]]
    play: Callable[[S, str], S]
    returns: Callable[[S], tuple[float, ...] | None]
    observation: Callable[[S, int], str]
    system_prompt: Callable[[int], str]
    best_actions: Callable[[S], tuple[str, ...]]
    read: Callable[[str], str] = str.strip
    read_in: Callable[[S, str], str] | None = None
    verdict: Callable[[S, int], tuple[str, bool]] | None = None
    players: int = 2
    refused: Callable[[S, str], S] | None = None
    made_by: Callable[[], Game[S]] | None = None

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        # Its functions may be local ones, which cannot be pickled.
        return (self.made_by, ()) if self.made_by else object.__reduce_ex__(self, protocol)

    def read_reply(self, state: S, text: str) -> Reading:
        """The action in a reply of the mover; its rule is "whole" where any text is legal."""
        legal = self.legal_actions(state)
        if text in legal:
            return Reading(text, "whole")
        if not legal:
            return Reading(self._read(state, without_thought(text)), "whole")
        return read_reply(text, lambda part: self.spelt(state, part), legal)

    def spelt(self, state: S, text: str) -> str | None:
        """The legal action that a text spells; None if it spells none."""
        action = self._read(state, text)
        return action if self.is_allowed(state, action) else None

    def _read(self, state: S, text: str) -> str:
        return self.read(text) if self.read_in is None else self.read_in(state, text)

    def is_allowed(self, state: S, action: str) -> bool:
        """True if the action, as `read_reply` returns it, is legal for the mover."""
        legal = self.legal_actions(state)
        return action in legal if legal else True

    def outcome(self, state: S, player: int) -> tuple[str, bool]:
        """The player's outcome in a final state, and True if it is a success."""
        if self.verdict is not None:
            return self.verdict(state, player)
        result = self.returns(state)
        assert result is not None, "the game is over"
        outcome = outcome_of(result[player])
        return outcome, outcome == "win"


def random_action(game: Game[S], state: S, rng: np.random.Generator) -> str:
    """A legal action, uniformly at random."""
    return pick(rng, game.legal_actions(state))


def perfect_action(game: Game[S], state: S, rng: np.random.Generator) -> str:
    """An action of perfect play, uniformly at random."""
    return pick(rng, game.best_actions(state))


OPPONENTS: Mapping[str, tuple[Opponent, ...]] = {
    "random": (random_action,),
    "perfect": (perfect_action,),
    "mixed": (random_action, perfect_action),
}


def find_opponent(
    name: str, opponents: Mapping[str, tuple[Opponent, ...]], rng: np.random.Generator
) -> Opponent:
    """A strategy of the named opponent. Raises ConfigError if there is none of that name."""
    return pick(rng, opponents[checked_choice("opponent", name, tuple(opponents))])


def caseless(text: str) -> str:
    """The text in lower case and without surrounding white space; a `read` of a Game."""
    return text.strip().lower()


def outcome_of(reward: float) -> str:
    """The outcome of a return: "win", "draw" or "loss"."""
    return "win" if reward > 0 else "loss" if reward < 0 else "draw"


def solved(
    *,
    mover: Callable[[S], int],
    legal_actions: Callable[[S], tuple[str, ...]],
    play: Callable[[S, str], S],
    returns: Callable[[S], tuple[float, ...] | None],
) -> Callable[[S], tuple[str, ...]]:
    """`Game.best_actions` of a zero-sum game that an exhaustive search can solve (minimax).

    Each state is computed once, at its first use, and cached; see the example of `Game`.
    """

    @cache
    def value(state: S) -> float:
        result = returns(state)
        if result is not None:
            return result[0]
        # The return of player 1 is minus that of player 0, which one value per state covers.
        values = [value(play(state, action)) for action in legal_actions(state)]
        return min(values) if mover(state) else max(values)

    @cache
    def chance(state: S, player: int) -> float:
        """Probability that `player` wins by its first best actions against random ones."""
        result = returns(state)
        if result is not None:
            return float(result[player] > 0)
        if mover(state) == player:
            return chance(play(state, best_actions(state)[0]), player)
        # The other player moves at random, as the scripted opponent "random" does.
        replies = legal_actions(state)
        return sum(chance(play(state, action), player) for action in replies) / len(replies)

    @cache
    def best_actions(state: S) -> tuple[str, ...]:
        player = mover(state)
        after = {action: play(state, action) for action in legal_actions(state)}
        best = (min if player else max)(value(state) for state in after.values())
        perfect = [action for action in after if value(after[action]) == best]
        # Among equal values, prefer the action after which a random player errs most often.
        return tuple(sorted(perfect, key=lambda action: -chance(after[action], player)))

    return best_actions
