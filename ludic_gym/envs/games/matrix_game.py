"""Repeated games of simultaneous moves with a payoff table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from ludic_gym.envs.core.game import Game, caseless

Pair = tuple[str, str]


class Rounds(NamedTuple):
    """The complete rounds, and the first player's choice in the present one ("" if none)."""

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
    """A symmetric game of `rounds` rounds.

    payoffs: a player's payoff in a round by its own action and the other's, from -1 to 1; the
        return is the mean over rounds.
    prompt, best_actions, made_by: see `Game`.
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
    """The state before the first round."""
    return Rounds()


def mover(state: Rounds) -> int:
    """The first player chooses first; its choice is hidden from the second."""
    # In turn for PettingZoo's AEC: the choice of the first waits until the second has chosen.
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
    """The number of the round, and the choices of the last complete one."""
    complete = len(state.played)
    number = (
        f"This is round {complete + 1} of {rounds}." if complete < rounds else "The game is over."
    )
    if not complete:
        return number
    mine, other = state.played[-1] if player == 0 else state.played[-1][::-1]
    return f"In round {complete} you chose {mine} and the other player chose {other}. {number}"


def seen_by(state: Rounds, player: int) -> list[Pair]:
    """The complete rounds as pairs of the player's own choice and the other's."""
    # Each player sees itself on the left, so that one prompt serves both seats.
    return [pair if player == 0 else pair[::-1] for pair in state.played]
