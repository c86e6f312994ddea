"""Rules and names of Gymnasium's environments of toy text, which these do not state themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Texts of one environment.

    rules: for the system prompt. actions: names, in the order of the action's numbers.
    state: the text of an observation, given the environment and the observation.
    solved: true for a last step that is a success, given its reward and `terminated`.
    forfeit: reward of an episode that ends by replies without an action, at most that of a loss.
    """

    rules: str
    actions: tuple[str, ...]
    state: Callable[[Any, Any], str]
    solved: Callable[[float, bool], bool]
    forfeit: float


def _lake_place(env: Any, number: Any) -> str:  # noqa: ANN401 - Gymnasium's, and a number
    row, column = divmod(int(number), env.ncol)
    return f"You are in row {row}, column {column}; row 0, column 0 is at the top left."


def _cliff_place(env: Any, number: Any) -> str:  # noqa: ANN401
    row, column = divmod(int(number), env.shape[1])
    return f"You are in row {row}, column {column}; row 0, column 0 is at the top left."


def _taxi_ride(env: Any, number: Any) -> str:  # noqa: ANN401
    row, column, passenger, goal = env.decode(int(number))
    stands = [
        f"{name} (row {r}, column {c})" for name, (r, c) in zip("RGYB", env.locs, strict=True)
    ]
    where = "in the taxi" if passenger == len(stands) else f"at {stands[passenger]}"
    return (
        f"The taxi is in row {row}, column {column}. The passenger is {where} and wants to go to "
        f"{stands[goal]}."
    )


def _blackjack_hand(env: Any, hand: Any) -> str:  # noqa: ANN401
    total, dealer, ace = hand
    soft = "with" if ace else "without"
    return f"Your cards sum to {total}, {soft} a usable ace. The dealer shows {dealer}."


@runtime_checkable
class HasTransitions(Protocol):
    """An env of toy text that lists the outcomes of each action in each state.

    P: by state and action, tuples of probability, next state, reward and end. The attribute `s` is
        the present state, after the first reset.
    """

    P: Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]


def best_actions(env: HasTransitions, discount: float = 0.99) -> list[int]:
    """A best action in each state, by value iteration.

    >>> import gymnasium as gym
    >>> best_actions(gym.make("CliffWalking-v1").unwrapped)[36]
    0
    """
    size = (len(env.P), len(env.P[0]), max(len(o) for a in env.P.values() for o in a.values()))
    chance, after, reward, goes_on = (np.zeros(size, kind) for kind in (float, int, float, float))
    for state, of_state in env.P.items():
        for action, outcomes in of_state.items():
            for i, (probability, following, earned, ends) in enumerate(outcomes):
                place = state, action, i
                chance[place], after[place], reward[place] = probability, following, earned
                goes_on[place] = not ends
    values, change = np.zeros(size[0]), 1.0
    # Of equal values, the lower action must not depend on the last digits.
    while change > 1e-10:
        of_actions = (chance * (reward + discount * goes_on * values[after])).sum(2).round(9)
        change = float(abs(of_actions.max(1) - values).max())
        values = of_actions.max(1)
    best: list[int] = of_actions.argmax(1).tolist()
    return best


GAMES: Mapping[str, Game] = MappingProxyType(
    {
        "FrozenLakeEnv": Game(
            rules="Cross the frozen lake from S to the goal G without falling into a hole H. F is "
            "ice, @ is you. The ice may be slippery: then you may slide to a side.",
            actions=("left", "down", "right", "up"),
            state=_lake_place,
            solved=lambda reward, terminated: reward > 0,
            forfeit=0.0,
        ),
        "CliffWalkingEnv": Game(
            rules="Walk from the bottom left to the target T at the bottom right. x is you. Each "
            "step costs 1; stepping onto the cliff C costs 100 and puts you back to the start.",
            actions=("up", "right", "down", "left"),
            state=_cliff_place,
            solved=lambda reward, terminated: terminated,
            forfeit=-200.0,
        ),
        "TaxiEnv": Game(
            rules="Drive the taxi @ to the passenger, pick up, drive to the goal and drop off. "
            "| is a wall, : is none. Each step costs 1, a wrong pickup or dropoff 10.",
            actions=("south", "north", "east", "west", "pickup", "dropoff"),
            state=_taxi_ride,
            solved=lambda reward, terminated: terminated,
            forfeit=-200.0,
        ),
        "BlackjackEnv": Game(
            rules="You play Blackjack against the dealer: get a higher sum than the dealer, who "
            "draws up to 17, without going over 21. hit draws a card, stick ends your turn.",
            actions=("stick", "hit"),
            state=_blackjack_hand,
            solved=lambda reward, terminated: reward > 0,
            forfeit=-1.0,
        ),
    }
)
