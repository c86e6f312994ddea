"""Repeated games in which both players act at once, for a payoff table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from ludic_gym.envs.core.game import Game, caseless

Pair = tuple[str, str]


class Rounds(NamedTuple):
    """The rounds that were played, and what the first player has already chosen for the next."""

    played: tuple[Pair, ...] = ()
    pending: str = ""


def matrix_game(
    *,
    name: str,
    rounds: int,
    actions: tuple[str, ...],
    payoffs: Mapping[Pair, float],
    prompt: str,
    best_actions: Callable[[Rounds], tuple[str, ...]],
    made_by: Callable[[], Game[Rounds]],
) -> Game[Rounds]:
    """A symmetric game of so many rounds.

    payoffs: what a player gets in a round for its own action and the other's, from -1 to 1; the
        return is their mean.
    """
    return Game(
        name=name,
        initial=initial,
        mover=mover,
        legal_actions=lambda state: actions,
        play=play,
        returns=partial(returns, rounds, payoffs),
        observation=partial(observation, rounds),
        system_prompt=lambda player: prompt,
        best_actions=best_actions,
        read=caseless,
        made_by=made_by,
    )


def initial(rng: np.random.Generator) -> Rounds:
    """No round was played."""
    return Rounds()


def mover(state: Rounds) -> int:
    """The first player chooses first; the second one does not see what."""
    return 1 if state.pending else 0


def play(state: Rounds, action: str) -> Rounds:
    """The state after a choice; the second one completes the round."""
    if not state.pending:
        return state._replace(pending=action)
    return Rounds((*state.played, (state.pending, action)))


def returns(
    rounds: int, payoffs: Mapping[Pair, float], state: Rounds
) -> tuple[float, float] | None:
    """The mean payoffs after the last round."""
    if len(state.played) < rounds:
        return None
    first = sum(payoffs[a, b] for a, b in state.played)
    second = sum(payoffs[b, a] for a, b in state.played)
    return first / rounds, second / rounds


def observation(rounds: int, state: Rounds, player: int) -> str:
    """The number of the round and what was chosen so far, never what is chosen now."""
    lines = [f"{own} - {other}" for own, other in seen_by(state, player)]
    number = min(len(lines) + 1, rounds)
    return "\n".join([f"Round {number} of {rounds}. You - other:", *lines])


def seen_by(state: Rounds, player: int) -> list[Pair]:
    """The player's own choices beside the other's."""
    return [pair if player == 0 else pair[::-1] for pair in state.played]
