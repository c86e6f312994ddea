"""The iterated Prisoner's Dilemma (Axelrod 1984)."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.game import Game, random_action
from ludic_gym.envs.core.one_player import OnePlayerEnv
from ludic_gym.envs.core.solitaire import checked_range
from ludic_gym.envs.core.two_player import GameAECEnv, SimultaneousEnv
from ludic_gym.envs.games.matrix_game import Rounds, matrix_game, mover, seen_by
from ludic_gym.errors import NoOracle

ROUNDS, MOST_ROUNDS = 10, 1000
COOPERATE, DEFECT = ACTIONS = ("cooperate", "defect")
POINTS = {
    (COOPERATE, COOPERATE): 3,
    (COOPERATE, DEFECT): 0,
    (DEFECT, COOPERATE): 5,
    (DEFECT, DEFECT): 1,
}
# Zero is what lasting cooperation earns.
PAYOFFS = {pair: (points - 3) / 3 for pair, points in POINTS.items()}
PROMPT = (
    "You play {rounds} rounds of the Prisoner's Dilemma; both players choose at once. If both "
    "cooperate each gets 3 points, if both defect 1; a defector gets 5 from a cooperator, who "
    "gets 0. Get as many points as you can. Reply with just cooperate or defect."
)


@cache
def prisoners_dilemma(rounds: int = ROUNDS) -> Game[Rounds]:
    """So many rounds of it. Raises ConfigError unless they are 1 to 1,000."""
    checked_range("rounds", rounds, 1, MOST_ROUNDS)
    return matrix_game(
        name="Prisoners Dilemma",
        rounds=rounds,
        actions=ACTIONS,
        payoffs=PAYOFFS,
        prompt=PROMPT.format(rounds=rounds),
        # The only equilibrium of a known number of rounds, by induction from the last.
        best_actions=lambda state: (DEFECT,),
        made_by=partial(prisoners_dilemma, rounds),
    )


def tit_for_tat(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Cooperates first, then does what the other player did last."""
    rounds = seen_by(state, mover(state))
    return rounds[-1][1] if rounds else COOPERATE


def grim(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Cooperates until the other player has defected once."""
    rounds = seen_by(state, mover(state))
    return DEFECT if any(other == DEFECT for _, other in rounds) else COOPERATE


def always_cooperate(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Cooperates."""
    return COOPERATE


def always_defect(game: Game[Any], state: Rounds, rng: np.random.Generator) -> str:
    """Defects."""
    return DEFECT


class PrisonersDilemmaEnv(OnePlayerEnv[Rounds]):
    """Some rounds of the Prisoner's Dilemma against a scripted opponent.

    rounds: how many; both players know.
    opponent: "tit_for_tat", "grim", "always_cooperate", "always_defect", "random", or "mixed":
        tit for tat or always defecting, drawn for every episode.

    Observation: all choices so far. Reward: (p - 3) / 3 for p points per round, so that a win is
    more than lasting cooperation earns. Nobody can win against "always_defect".

        Round 1 of 10. You - other:
    defect
        Round 2 of 10. You - other:
        defect - cooperate
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

    def oracle_action(self) -> str:
        """The best reply to the opponent's rule: those who retaliate are betrayed at the end."""
        if not self._running:
            raise NoOracle(f"{self.game.name}: no game is running; call reset() first")
        rounds = seen_by(self._state, self._seat)
        is_last = len(rounds) == self._rounds - 1
        if self._opponent is grim and any(own == DEFECT for own, _ in rounds):
            return DEFECT
        return COOPERATE if self._opponent in (tit_for_tat, grim) and not is_last else DEFECT


class PrisonersDilemmaAECEnv(GameAECEnv[Rounds]):
    """The Prisoner's Dilemma for two agents in turn; the second does not see the first's choice."""

    def __init__(self, rounds: int = ROUNDS, render_mode: str | None = None) -> None:
        self.game = prisoners_dilemma(rounds)
        super().__init__(render_mode)


def parallel_env(rounds: int = ROUNDS, render_mode: str | None = None) -> SimultaneousEnv[Rounds]:
    """The Prisoner's Dilemma for two agents at once."""
    return SimultaneousEnv(PrisonersDilemmaAECEnv(rounds, render_mode))
