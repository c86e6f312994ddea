"""Rules and names of Gymnasium's environments of toy text, which these do not state themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


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
