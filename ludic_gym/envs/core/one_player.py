"""One-player environments of games: a seat against scripted opponents, and games for one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal

import numpy as np

from ludic_gym.envs.core.base import (
    TextEnv,
    Turn,
    checked_choice,
    checked_range,
    end,
    pick,
    proceed,
)
from ludic_gym.envs.core.game import (
    OPPONENTS,
    Game,
    Opponent,
    S,
    find_opponent,
    refusal,
)
from ludic_gym.envs.core.levels import SPLITS, Split, draw_in_split
from ludic_gym.reader import Reading, read_reply, without_thought

_SEATS = {"first": (0,), "second": (1,), "random": (0, 1)}


class OnePlayerEnv(TextEnv, Generic[S]):
    """One seat of a game, the other ones taken by a scripted opponent.

    A subclass sets `game`, and `opponents` if they differ from `OPPONENTS`. One with the argument
    `split` sets it, and writes `task` if the first state has more than the task.

    - Observation: the state as the player of the seat sees it.
    - Action: one of `legal_actions()`; an illegal one ends the episode, unless the game has another
      rule for it.
    - Reward: at the end 1 for a win, -1 for a loss or an illegal action, `draw_reward` for a draw
      (component "outcome").
    - Info at the end: "outcome" ("win", "draw", "loss" or "illegal"). A win is a success.

    Attributes:
        game: rules of the game.
        opponents: names of opponents, each with its strategies; one of these is drawn for each
            episode.
        state: state of the game.
        seat: the agent's seat, from 0.
        opponent: the strategy of all other seats in the present episode.
        split: part of the first states that are drawn; "train" and "test" have none in common.

    Args:
        opponent: "random", "perfect" (one of its best actions, uniformly at random), or "mixed"
            (one of the two, drawn for each episode).
        seat: "first" or "second" to move, or "random": drawn for each episode.
        draw_reward: reward of a draw.

    >>> import gymnasium as gym
    >>> env = gym.make("ludic/TicTacToe-v0", opponent="perfect", seat="second")
    >>> print(env.reset(seed=1)[0])
      1 2 3
    A . . X
    B . . .
    C . . .
    >>> observation, reward, terminated, truncated, info = env.step("not a cell")
    >>> reward, info["outcome"]
    (-1.0, 'illegal')
    """

    game: Game[S]
    # A reply without an action costs as much as an illegal one, or it would be a way out.
    forfeit_reward = -1.0
    opponents: ClassVar[Mapping[str, tuple[Opponent, ...]]] = OPPONENTS
    split: str = "all"

    def __init__(
        self,
        opponent: str = "random",
        seat: Literal["first", "second", "random"] = "first",
        draw_reward: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self._opponents = self.opponents[
            checked_choice("opponent", opponent, tuple(self.opponents))
        ]
        self._seats = _SEATS[checked_choice("seat", seat, tuple(_SEATS))]
        self._draw_reward = float(draw_reward)

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw opponent, seat and first state; the opponent moves first if its seat does."""
        rng, game = self.np_random, self.game
        # Opponent, seat and state are drawn even if there is no choice: the same seed then gives
        # the same first state for every opponent.
        self.opponent = pick(rng, self._opponents)
        self.seat = pick(rng, self._seats)
        self._advance(draw_in_split(lambda: game.initial(rng), self.split, self.task))
        return game.observation(self.state, self.seat), game.system_prompt(self.seat)

    def task(self, state: S) -> str:
        """A text that equal first states have in common; it decides their split."""
        return repr(state)

    def rival_action(self, state: S) -> str:
        """The action of the opponent that moves in the state."""
        return self.opponent(self.game, state, self.np_random)

    def read(self, reply: str) -> Reading:
        """The action in a reply of the agent."""
        return self.game.read_reply(self.state, reply)

    def spelt_action(self, text: str) -> str | None:
        """The legal action that a text spells; None if it spells none."""
        return self.game.spelt(self.state, text)

    def opponent_action(self, name: str, rng: np.random.Generator) -> str:
        """The action of a scripted opponent in the place of the agent.

        name: one of `opponents`. Raises ConfigError for another one.
        """
        return find_opponent(name, self.opponents, rng)(self.game, self.state, rng)

    def turn(self, action: str) -> Turn:
        """Play the action, then the opponent's reply."""
        game, state = self.game, self.state
        if game.is_allowed(state, action):
            result = self._advance(game.play(state, action))
        elif game.refused is None:
            return self._last_turn("illegal", False, -1.0)
        else:
            result = self._advance(game.refused(state, action))
        if result is None:
            return proceed(game.observation(self.state, self.seat))
        outcome, success = game.outcome(self.state, self.seat)
        # A return of 0 is a draw, whose reward is the caller's choice.
        return self._last_turn(outcome, success, result[self.seat] or self._draw_reward)

    def _advance(self, state: S) -> tuple[float, ...] | None:
        """Set the next state in which the agent moves or the game is over; its returns."""
        game = self.game
        while (result := game.returns(state)) is None and game.mover(state) != self.seat:
            state = game.play(state, self.rival_action(state))
        self.state = state
        return result

    def _last_turn(self, outcome: str, success: bool, value: float) -> Turn:
        text = self.game.observation(self.state, self.seat)
        # Games with a rule of their own for illegal actions say it themselves.
        if outcome == "illegal" and self.game.refused is None:
            text = f"{refusal(self.allowed_actions())} The game is lost.\n{text}"
        return end(text, success=success, info={"outcome": outcome}, outcome=value)

    def allowed_actions(self) -> tuple[str, ...]:
        """Legal actions of the agent."""
        return self.game.legal_actions(self.state)

    def best_action(self) -> str:
        """The action of perfect play that wins most often against random replies."""
        return self.game.best_actions(self.state)[0]


# Result of a move; "" if the game continues.
Outcome = Literal["", "win", "loss", "illegal"]


class SolitaireEnv(TextEnv):
    """A one-player game that is won within a number of turns.

    A subclass sets `prompt` and writes `deal`, `move` and `view`, for the reader of replies
    `allowed_actions` or `action_pattern`, and for oracles `best_action`. One with the argument
    `split` writes `game`.

    - Observation: the position, or where it is a list of hints the newest of them; after an illegal
      action, before it, the legal actions or the form of one.
    - Action: one of `legal_actions()`; an illegal one uses up a turn and changes nothing else.
      `ludic_gym.reader` finds it in a reply.
    - Reward: 1 for a win (component "win"), else 0.
    - Info: "illegal" in every step; "outcome" ("win" or "loss") in the last one.

    Attributes:
        prompt: system prompt with the rules and the reply format.
        reply_form: the form of a legal action with an example, for the feedback on an illegal one;
            "" for none.
        turns: number of turns of an episode.
        turns_left: turns that are left; decreases before each `move`.

    >>> class Coin(SolitaireEnv):
    ...     prompt, reply_form = "Guess the coin.", "heads or tails"
    ...
    ...     def deal(self, rng):
    ...         self.side = "heads"
    ...
    ...     def view(self):
    ...         return f"Guesses left: {self.turns_left}."
    ...
    ...     def move(self, action):
    ...         return "win" if action == self.side else "" if action == "tails" else "illegal"
    ...
    ...     def allowed_actions(self):
    ...         return "heads", "tails"
    >>> env = Coin(turns=3)
    >>> env.reset(seed=1)[0], env.step("tails")[0]
    ('Guesses left: 3.', 'Guesses left: 2.')
    >>> env.step("heads.")[1:3]
    (1.0, True)
    """

    prompt: str
    reply_form: str = ""

    def __init__(self, turns: int, render_mode: str | None = None, *, split: Split = "all") -> None:
        super().__init__(render_mode)
        self._split = checked_choice("split", split, SPLITS)
        self.turns = checked_range("turns", turns, 1, 10_000)
        self.turns_left = self.turns

    @abstractmethod
    def deal(self, rng: np.random.Generator) -> None:
        """Set up a new game."""

    @abstractmethod
    def move(self, action: str) -> Outcome:
        """Play the action, which is stripped of surrounding white space."""

    @abstractmethod
    def view(self) -> str:
        """The position as the player sees it."""

    def game(self) -> str:
        """A text that equal games have in common, after `deal`; it decides the split of the game.

        By default the first view, which is enough where the player sees everything.
        """
        return self.view()

    def read(self, reply: str) -> None:
        """None: `turn` reads, because most replies are an action that `move` takes as it stands."""

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Deal a new game of the split."""
        self.turns_left = self.turns
        draw_in_split(lambda: self.deal(self.np_random), self._split, lambda _: self.game())
        return self.view(), self.prompt

    def turn(self, action: str) -> Turn:
        """Play the action."""
        # Before the move, so that the view shows what is left, and a game can give a turn back.
        self.turns_left -= 1
        outcome = self.move(without_thought(action))
        info = dict[str, Any]()
        if outcome == "illegal":
            # An illegal move changes nothing, so there can be a second one.
            reading = read_reply(action, self.spelt_action, self.allowed_actions())
            outcome, info = self.move(reading.action), reading.info
        illegal = outcome == "illegal"
        text = self.view()
        if illegal:
            text = f"{refusal(self.allowed_actions(), self.reply_form)}\n{text}"
        # A win or a loss on the last turn counts: it is decided before the turns are.
        if (illegal or not outcome) and self.turns_left > 0:
            return proceed(text, 0.0, {**info, "illegal": illegal})
        won = outcome == "win"
        info = {**info, "illegal": illegal, "outcome": "win" if won else "loss"}
        return end(text, success=won, info=info, win=won)


def guesses_left(count: int) -> str:
    """The sentence on the number of guesses."""
    return f"You have {count} guess{'es' * (count != 1)} left."
