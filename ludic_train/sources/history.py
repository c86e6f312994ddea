"""Pass rates of tasks over a run, and the tasks that are solved for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ludic_train.types import Trajectory


class TaskHistory:
    """Rollouts and successes of each task, over all its groups.

    retired: keys of tasks whose pass rate has reached `retire_at`; they are not played again
    (no-positive-resampling of ScaleRL, Khatri et al. 2025, arXiv:2510.13786).
    """

    def __init__(self) -> None:
        self.retired: dict[str, None] = {}
        self._plays: dict[str, list[int]] = {}

    def note(self, trajectories: Iterable[Trajectory], retire_at: float) -> list[str]:
        """Count the rollouts; keys of the tasks that are retired by them."""
        changed = {}
        for trajectory in trajectories:
            plays = self._plays.setdefault(trajectory.task, [0, 0])
            plays[0] += trajectory.success
            plays[1] += 1
            changed[trajectory.task] = plays
        solved = [
            task
            for task, (passes, plays) in changed.items()
            if task not in self.retired and passes / plays >= retire_at
        ]
        self.retired |= dict.fromkeys(solved)
        return solved

    def state_dict(self) -> dict[str, Any]:
        """The counts, as JSON can hold them."""
        return {
            "plays": {task: list(plays) for task, plays in self._plays.items()},
            "retired": list(self.retired),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the counts of `state`."""
        self._plays = {task: [int(a), int(b)] for task, (a, b) in state["plays"].items()}
        self.retired = dict.fromkeys(state["retired"])
