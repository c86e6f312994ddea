"""Curricula: levels of difficulty that training moves through by success rate."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from ludic_gym.errors import ConfigError
from ludic_train.errors import CheckpointError
from ludic_train.metrics import Metrics, Stat
from ludic_train.types import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSchedule:
    """Rule by which a training run moves environments between levels of difficulty.

        schedule = lt.LevelSchedule(levels={"mine/Digits-v0": [{"length": 2}, {"length": 4}]})
        lt.train("mine/Digits-v0", curriculum=schedule)

    An environment begins at its first level. After each group of the current level, the mean
    success of the last `window` groups of that level decides: at `raise_at` or more, the next level
    begins; below `lower_at`, the one before comes back. A level that begins has no groups yet.
    levels: id of an environment -> arguments of each of its levels, from easy to hard.
    raise_at, lower_at: success rates. A lower_at of 0 never goes back.
    window: groups without which nothing is decided.
    easier: share of the tasks that is drawn from the levels below the current one, equally often,
        so that nothing is forgotten.
    Raises ConfigError for an environment of fewer than two levels or with one twice, and for
    impossible numbers.
    """

    levels: Mapping[str, Sequence[Mapping[str, Any]]]
    raise_at: float = 0.8
    lower_at: float = 0.05
    window: int = 64
    easier: float = 0.2

    def __post_init__(self) -> None:
        for env_id, levels in self.levels.items():
            if len(levels) < 2:
                raise ConfigError(
                    f"{env_id} has {len(levels)} levels in the curriculum: give two or more, from "
                    "easy to hard"
                )
            if twice := [level for n, level in enumerate(levels) if level in levels[:n]]:
                raise ConfigError(
                    f"{env_id} has the level {dict(twice[0])} twice in the curriculum"
                )
        if not 0 <= self.lower_at < self.raise_at <= 1:
            raise ConfigError(
                f"raise_at={self.raise_at} and lower_at={self.lower_at} are success rates, and the "
                "second is the smaller one"
            )
        if self.window < 1 or not 0 <= self.easier < 1:
            raise ConfigError(
                f"window={self.window} must be at least 1, and easier={self.easier} from 0 to "
                "below 1"
            )


def drawn_level(schedule: LevelSchedule, current: int, number: int) -> int:
    """The level of the task of this number, while `current` is the level of its environment.

    A function of its arguments alone, so that a resumed run and any actor draw the same.

    >>> schedule = LevelSchedule(levels={"mine/Sum-v0": [{}, {"digits": 2}]}, easier=0.5)
    >>> [drawn_level(schedule, current=1, number=number) for number in range(8)]
    [1, 0, 1, 0, 1, 1, 1, 1]
    """
    if current == 0:
        return 0
    rng = np.random.default_rng([number, current])
    # Levels below, equally often; at the first one there is none.
    return int(rng.integers(current)) if rng.random() < schedule.easier else current


class Levels:
    """Current levels of a run, and the success of the latest groups at each.

    keys: `Trajectory.env_key` -> id and level of an environment with such arguments.
    current: level by id, from 0. Changed in place, so that tasks can be made from it.
    """

    def __init__(self, schedule: LevelSchedule, keys: Mapping[str, tuple[str, int]]) -> None:
        self.current = dict.fromkeys(schedule.levels, 0)
        self._schedule, self._keys = schedule, keys
        self._recent = {env_id: deque[float](maxlen=schedule.window) for env_id in schedule.levels}

    def note(self, seen: Iterable[Trajectory]) -> Metrics:
        """Move by the groups, in their order; "success/level_N", the success rate at each level.

        Groups of other levels than the current one change nothing: those of easier levels, and
        those that were played before a move.
        The environment's id is in the names where there are several.
        """
        by_group: dict[str, list[Trajectory]] = {}
        for number, trajectory in enumerate(seen):
            by_group.setdefault(trajectory.group or f"#{number}", []).append(trajectory)
        successes: dict[str, list[float]] = {}
        for members in by_group.values():
            env_id, level = self._keys.get(members[0].env_key, ("", 0))
            if env_id:
                solved = [float(trajectory.success) for trajectory in members]
                name = self._name(f"success/level_{level}", env_id)
                successes.setdefault(name, []).extend(solved)
                if level == self.current[env_id]:
                    self._count(env_id, sum(solved) / len(solved))
        return {name: Stat.of(solved) for name, solved in successes.items()}

    def metrics(self) -> Metrics:
        """The metric "level", the current one of each environment."""
        return {self._name("level", env_id): Stat(n, 1) for env_id, n in self.current.items()}

    def batches_down(self, groups: int) -> int:
        """Mean number of failed batches of that many groups before all levels are the first ones.

        0 for a schedule that never goes back.
        """
        rule = self._schedule
        # Groups of easier levels move nothing, and the environments share a batch.
        counted = groups * (1 - rule.easier) / len(self.current)
        moves = max(self.current.values()) if rule.lower_at else 0
        return moves * ceil(rule.window / counted)

    def state_dict(self) -> dict[str, Any]:
        """The levels, and the success rates of the groups that count, as JSON can hold them."""
        recent = {env_id: list(rates) for env_id, rates in self._recent.items()}
        return {"current": dict(self.current), "recent": recent}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the levels of `state`."""
        # In place, because tasks are made from this mapping.
        self.current.update({env_id: int(state["current"][env_id]) for env_id in self.current})
        for env_id, rates in self._recent.items():
            rates.clear()
            rates.extend(map(float, state["recent"][env_id]))

    def _count(self, env_id: str, success: float) -> None:
        """Count a group of the current level, and move once its window is full."""
        rates, level = self._recent[env_id], self.current[env_id]
        rates.append(success)
        # A part of a window would let the first few groups decide.
        if len(rates) < self._schedule.window:
            return
        rate = sum(rates) / len(rates)
        if rate >= self._schedule.raise_at and level + 1 < len(self._schedule.levels[env_id]):
            self.current[env_id] += 1
        elif rate < self._schedule.lower_at and level:
            self.current[env_id] -= 1
        if self.current[env_id] != level:
            # What was seen of another level says nothing about this one.
            rates.clear()

    def _name(self, metric: str, env_id: str) -> str:
        return metric if len(self.current) == 1 else f"{metric}/{env_id}"


def state_of_levels(levels: Levels | None) -> dict[str, Any]:
    """The part of a source's state that holds its levels; {} without a curriculum."""
    return {} if levels is None else {"levels": levels.state_dict()}


def restore_levels(levels: Levels | None, state: Mapping[str, Any]) -> None:
    """Load the levels from a source's state.

    Raises CheckpointError where the run that saved it had a curriculum and this one has none, or
    the reverse.
    """
    if (levels is None) != ("levels" not in state):
        raise CheckpointError(
            f"the checkpoint is of a run {'with' if levels is None else 'without'} a curriculum, "
            "and this one is not: resume with the settings that it was started with"
        )
    if levels is not None:
        levels.load_state_dict(state["levels"])


def levels_to_text(current: Mapping[str, int]) -> str:
    """Levels by id as text for a queue; "" for none."""
    return json.dumps(dict(current), sort_keys=True) if current else ""


def levels_from_text(text: str) -> dict[str, int]:
    """The levels of a `levels_to_text`."""
    return json.loads(text) if text else {}
