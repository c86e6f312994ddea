"""A complete group of rollouts on its way from an actor to a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ludic_train.metrics import Metric
from ludic_train.types import SAWItem, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """Rollouts of one task, in tokens and without credit.

    key: unique among all groups of all actors; pushed twice, a group is trained on once.
    trajectories: all have `group` equal to the key.
    actor: name of the actor that played it.
    metrics: metrics of its episodes, those that left no trajectory included.
    """

    key: str
    trajectories: tuple[Trajectory, ...] = field(repr=False)
    actor: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def rows(self) -> list[SAWItem]:
        """The rows of all trajectories."""
        return [row for trajectory in self.trajectories for row in trajectory.rows]


def oldest_version(rows: Sequence[SAWItem]) -> int | None:
    """The oldest update whose params sampled a token; None where a row does not say its own."""
    found: list[int] = []
    for row in rows:
        if row.versions is None:
            return None
        if row.action_mask.any():
            found.append(int(row.versions[row.action_mask].min()))
    return min(found, default=None)
