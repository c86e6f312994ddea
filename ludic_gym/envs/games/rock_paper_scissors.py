"""Rock, Paper, Scissors: repeated, and both players choose at once."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.game import Game, random_action
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.solitaire import checked_range
from ludic_gym.envs.core.two_player import GameAECEnv, SimultaneousEnv
from ludic_gym.envs.games.matrix_game import Rounds, matrix_game, mover, seen_by
from ludic_gym.errors import NoOracle

ROUNDS, MOST_ROUNDS = 9, 1000
ACTIONS = ("rock", "paper", "scissors")
BEATEN_BY = {"rock": "paper", "paper": "scissors", "scissors": "rock"}
PAYOFFS = {
    (a, b): 0.0 if a == b else 1.0 if BEATEN_BY[b] == a else -1.0 for a in ACTIONS for b in ACTIONS
}
PROMPT = (
    "You play {rounds} rounds of Rock, Paper, Scissors; both players choose at once. Win more "
    "rounds than the other player. Reply with just rock, paper or scissors."
)


@cache
def rock_paper_scissors(rounds: int = ROUNDS) -> Game[Rounds]:
    """So many rounds of it. Raises ConfigError unless they are 1 to 1,000."""
    checked_range("rounds", rounds, 1, MOST_ROUNDS)
    return matrix_game(
        name="Rock Paper Scissors",
        rounds=rounds,
        actions=ACTIONS,
        payoffs=PAYOFFS,
        prompt=PROMPT.format(rounds=rounds),
        # Each as likely: the only equilibrium.
        best_actions=lambda state: ACTIONS,
        made_by=partial(rock_paper_scissors, rounds),
    )


def cycling(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """What beats its own last choice; any at first."""
    own = [mine for mine, _ in seen_by(state, mover(state))]
    return BEATEN_BY[own[-1]] if own else pick(rng, ACTIONS)


def copying(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """The other player's last choice; any at first."""
    others = [theirs for _, theirs in seen_by(state, mover(state))]
    return others[-1] if others else pick(rng, ACTIONS)


class RockPaperScissorsEnv(OnePlayerEnv[Rounds]):
    """Some rounds against an opponent that may be seen through.

    rounds: how many.
    opponent: "cycle" (rock, paper, scissors, rock, ...), "copy" (the agent's last choice), each
        with any first choice, "random", or "mixed": one of the three, drawn for every episode.

    Observation: all choices so far. Reward: rounds won less rounds lost, divided by all of them.

        Round 1 of 9. You - other:
    paper
        Round 2 of 9. You - other:
        paper - rock
    """

    opponents = {  # noqa: RUF012 (as the base class has it)
        "cycle": (cycling,),
        "copy": (copying,),
        "random": (random_action,),
        "mixed": (cycling, copying, random_action),
    }

    def __init__(
        self,
        opponent: str = "cycle",
        seat: Literal["first", "second", "random"] = "first",
        rounds: int = ROUNDS,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(opponent, seat, render_mode=render_mode)
        self.game = rock_paper_scissors(rounds)

    def oracle_action(self) -> str:
        """What beats the choice that follows from the opponent's rule, if one does."""
        if not self._running:
            raise NoOracle(f"{self.game.name}: no game is running; call reset() first")
        rounds = seen_by(self._state, self._seat)
        if not rounds or self._opponent is random_action:
            return ACTIONS[0]
        own, other = rounds[-1]
        return BEATEN_BY[BEATEN_BY[other] if self._opponent is cycling else own]


class RockPaperScissorsAECEnv(GameAECEnv[Rounds]):
    """Rock, Paper, Scissors for two agents in turn; the second does not see the first's choice."""

    def __init__(self, rounds: int = ROUNDS, render_mode: str | None = None) -> None:
        self.game = rock_paper_scissors(rounds)
        super().__init__(render_mode)


def parallel_env(rounds: int = ROUNDS, render_mode: str | None = None) -> SimultaneousEnv[Rounds]:
    """Rock, Paper, Scissors for two agents at once."""
    return SimultaneousEnv(RockPaperScissorsAECEnv(rounds, render_mode))
