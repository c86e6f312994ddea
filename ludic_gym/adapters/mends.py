"""Mends of tasks of other packages that are known to be wrong: see `envs_registry.errata`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ludic_gym.deciders import arithmetic, syllogism

Entry = dict[str, Any]
"""A puzzle of reasoning-gym: "question", "answer" and the fields for its scorer."""

_BUTTON = re.compile(r"\[(.*)\]")


def solved_by(solve: Callable[[str], tuple[str, ...]], entry: Entry) -> Entry:
    """The entry with the solver's answer; with its own where the solver cannot decide."""
    return {**entry, "answer": next(iter(solve(entry["question"])), entry["answer"])}


ENTRIES: Mapping[str, Callable[[Entry], Entry]] = {
    "basic_arithmetic": partial(solved_by, arithmetic),
    "syllogism": partial(solved_by, syllogism),
}
"""The mended entry of a dataset of reasoning-gym, by its name."""


def has_numbers(answer: str, entry: Entry) -> bool:
    """True if the answer has the numbers of the task, each once."""
    used = sorted(map(int, re.findall(r"\d{1,9}", answer)))
    return used == sorted(map(int, entry["metadata"]["numbers"]))


ANSWERS: Mapping[str, Callable[[str, Entry], bool]] = {"puzzle24": has_numbers}
"""True for an answer that may be scored, by the name of the dataset."""


def mend_bandit(env: Any) -> None:  # noqa: ANN401 (not typed)
    """Let the best button pay 1 in the last turn of TextArena's bandit, and any other 0."""
    env.step = partial(_bandit_step, env)


def _bandit_step(env: Any, action: str) -> tuple[bool, Any]:  # noqa: ANN401 (not typed)
    state, named = env.state, _BUTTON.search(action)
    if state.turn < env.num_turns or named is None or named[1] not in env.buttons:
        turn: tuple[bool, Any] = type(env).step(env, action)
        return turn
    odds = state.game_state["ground_truth"]
    best = odds[named[1]] == max(odds.values())
    verdict = "the best button" if best else "another button than the best one"
    state.set_outcome(reward=float(best), reason=f"You chose {verdict}.")
    last: tuple[bool, Any] = state.step()
    return last


GAMES: Mapping[str, Callable[[Any], None]] = {"Bandit-v0": mend_bandit}
"""Changes a game of TextArena in place, by its name."""
