"""Rock, Paper, Scissors in several rounds of simultaneous moves."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.base import checked_range, pick
from ludic_gym.envs.core.game import Game, random_action
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv, SimultaneousEnv
from ludic_gym.envs.games.matrix_game import Rounds, matrix_game, mover, seen_by

ROUNDS, MOST_ROUNDS = 9, 1000
ACTIONS = ("rock", "paper", "scissors")
BEATEN_BY = {"rock": "paper", "paper": "scissors", "scissors": "rock"}
PAYOFFS = {
    (a, b): 0.0 if a == b else 1.0 if BEATEN_BY[b] == a else -1.0 for a in ACTIONS for b in ACTIONS
}
PROMPT = (
    "You play {rounds} rounds of Rock, Paper, Scissors; both players choose at the same time. Win "
    "more rounds than the other player. Reply with just rock, paper or scissors."
)


@cache
def rock_paper_scissors(rounds: int = ROUNDS) -> Game[Rounds]:
    """The game of `rounds` rounds. Raises ConfigError unless these are 1 to 1,000."""
    checked_range("rounds", rounds, 1, MOST_ROUNDS)
    return matrix_game(
        name="Rock Paper Scissors",
        rounds=rounds,
        actions=ACTIONS,
        payoffs=PAYOFFS,
        prompt=PROMPT.format(rounds=rounds),
        # Uniformly at random: the only equilibrium.
        best_actions=lambda state: ACTIONS,
        made_by=partial(rock_paper_scissors, rounds),
    )


def cycling(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Play the action that beats its own last one; at first any, uniformly at random."""
    choices = [mine for mine, _ in seen_by(state, mover(state))]
    return BEATEN_BY[choices[-1]] if choices else pick(rng, ACTIONS)


def copying(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Repeat the other player's last choice; at first any, uniformly at random."""
    others = [theirs for _, theirs in seen_by(state, mover(state))]
    return others[-1] if others else pick(rng, ACTIONS)


class RockPaperScissorsEnv(OnePlayerEnv[Rounds]):
    """Rounds of Rock, Paper, Scissors against an opponent whose strategy can be inferred.

    - Observation: the number of the round, and the choices of the last one.
    - Action: rock, paper or scissors, in either case.
    - Reward: rounds won minus rounds lost, divided by all rounds (component "outcome"); -1 for an
      illegal action.
    - Info: see `OnePlayerEnv`.

    Args:
        opponent: "cycle" (rock, paper, scissors, rock, ...), "copy" (the agent's last choice),
            both with a random first choice, "random", or "mixed" (one of the three, drawn for each
            episode).
        seat: see `OnePlayerEnv`; neither player sees the other's present choice.
        rounds: number of rounds.
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

    def best_action(self) -> str:
        """The action that beats the opponent's next one, if its strategy determines it."""
        rounds = seen_by(self.state, self.seat)
        if not rounds or self.opponent is random_action:
            # Nothing is known about the next choice: any reply is as good as another.
            return ACTIONS[0]
        # A cycling opponent moves on from its last choice, a copying one repeats the agent's.
        mine, other = rounds[-1]
        return BEATEN_BY[BEATEN_BY[other] if self.opponent is cycling else mine]


class RockPaperScissorsAECEnv(GameAECEnv[Rounds]):
    """Rock, Paper, Scissors for two agents in turn (AEC); the first's choice is hidden."""

    def __init__(self, rounds: int = ROUNDS, render_mode: str | None = None) -> None:
        self.game = rock_paper_scissors(rounds)
        super().__init__(render_mode)


def parallel_env(rounds: int = ROUNDS, render_mode: str | None = None) -> SimultaneousEnv[Rounds]:
    """Rock, Paper, Scissors for two agents at once (PettingZoo Parallel)."""
    return SimultaneousEnv(RockPaperScissorsAECEnv(rounds, render_mode))
