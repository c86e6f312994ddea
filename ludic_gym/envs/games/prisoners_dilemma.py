"""The iterated Prisoner's Dilemma (Axelrod 1984)."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.base import checked_range
from ludic_gym.envs.core.game import Game, random_action
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.two_player import GameAECEnv, SimultaneousEnv
from ludic_gym.envs.games.matrix_game import Rounds, matrix_game, mover, seen_by

ROUNDS, MOST_ROUNDS = 10, 1000
COOPERATE, DEFECT = ACTIONS = ("cooperate", "defect")
POINTS = {
    (COOPERATE, COOPERATE): 3,
    (COOPERATE, DEFECT): 0,
    (DEFECT, COOPERATE): 5,
    (DEFECT, DEFECT): 1,
}
# Shifted so that permanent cooperation pays 0.
PAYOFFS = {pair: (points - 3) / 3 for pair, points in POINTS.items()}
PROMPT = (
    "You play {rounds} rounds of the Prisoner's Dilemma; both players choose at the same time. If "
    "both cooperate, each gets 3 points; if both defect, each gets 1 point; if only one defects, "
    "that player gets 5 points and the other one 0. Get as many points as you can. Reply with just "
    "cooperate or defect."
)


@cache
def prisoners_dilemma(rounds: int = ROUNDS) -> Game[Rounds]:
    """The game of `rounds` rounds. Raises ConfigError unless these are 1 to 1,000."""
    checked_range("rounds", rounds, 1, MOST_ROUNDS)
    return matrix_game(
        name="Prisoners Dilemma",
        rounds=rounds,
        actions=ACTIONS,
        payoffs=PAYOFFS,
        prompt=PROMPT.format(rounds=rounds),
        # The only equilibrium of a known number of rounds, by backward induction.
        best_actions=lambda state: (DEFECT,),
        made_by=partial(prisoners_dilemma, rounds),
    )


def tit_for_tat(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Cooperate first, then repeat the other player's last choice."""
    rounds = seen_by(state, mover(state))
    return rounds[-1][1] if rounds else COOPERATE


def grim(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Cooperate until the other player defects, then defect for ever."""
    rounds = seen_by(state, mover(state))
    return DEFECT if any(other == DEFECT for _, other in rounds) else COOPERATE


def always_cooperate(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Cooperate in every round."""
    return COOPERATE


def always_defect(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Defect in every round."""
    return DEFECT


class PrisonersDilemmaEnv(OnePlayerEnv[Rounds]):
    """The iterated Prisoner's Dilemma against a scripted opponent.

    - Observation: the number of the round, and the choices of the last one.
    - Action: cooperate or defect, in either case.
    - Reward: (p - 3) / 3 for a mean of p points per round (component "outcome"), -1 for an illegal
      action. A success is more than permanent cooperation pays, which "always_defect" prevents.
    - Info: see `OnePlayerEnv`.

    Args:
        opponent: "tit_for_tat", "grim", "always_cooperate", "always_defect", "random", or "mixed"
            ("tit_for_tat" or "always_defect", drawn for each episode).
        seat: see `OnePlayerEnv`; neither player sees the other's present choice.
        rounds: number of rounds.
    """

    opponents = {  # noqa: RUF012 (as the base class has it)
        "tit_for_tat": (tit_for_tat,),
        "grim": (grim,),
        "always_cooperate": (always_cooperate,),
        "always_defect": (always_defect,),
        "random": (random_action,),
        "mixed": (tit_for_tat, always_defect),
    }

    def __init__(
        self,
        opponent: str = "tit_for_tat",
        seat: Literal["first", "second", "random"] = "first",
        rounds: int = ROUNDS,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(opponent, seat, render_mode=render_mode)
        self.game = prisoners_dilemma(rounds)
        self._rounds = rounds

    def best_action(self) -> str:
        """The best response to the opponent's strategy: defect, or only at the end."""
        rounds = seen_by(self.state, self.seat)
        # Nothing can punish a defection in the last round.
        is_last = len(rounds) == self._rounds - 1
        # After one defection grim never cooperates again, so cooperation only costs.
        if self.opponent is grim and any(mine == DEFECT for mine, _ in rounds):
            return DEFECT
        return COOPERATE if self.opponent in (tit_for_tat, grim) and not is_last else DEFECT


class PrisonersDilemmaAECEnv(GameAECEnv[Rounds]):
    """The Prisoner's Dilemma for two agents in turn (AEC); the first's choice is hidden."""

    def __init__(self, rounds: int = ROUNDS, render_mode: str | None = None) -> None:
        self.game = prisoners_dilemma(rounds)
        super().__init__(render_mode)


def parallel_env(rounds: int = ROUNDS, render_mode: str | None = None) -> SimultaneousEnv[Rounds]:
    """The Prisoner's Dilemma for two agents at once (PettingZoo Parallel)."""
    return SimultaneousEnv(PrisonersDilemmaAECEnv(rounds, render_mode))
