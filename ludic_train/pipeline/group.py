"""A complete group on its way from an actor to a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ludic_train.metrics import Metric
from ludic_train.types import SAWItem


@dataclass(frozen=True, slots=True, kw_only=True)
class SAWGroup:
    """The rows of rollouts that were compared with each other, with their credit.

    key: no two groups share one, whoever played them; pushed twice, it is trained on once.
    items: none where all rollouts earned the same, say: such a group only counts in its batch.
    actor: who played it.
    metrics: what is worth logging about its episodes, those that left no row included.
    """

    key: str
    items: tuple[SAWItem, ...] = field(repr=False)
    actor: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)


def oldest_version(items: Sequence[SAWItem]) -> int | None:
    """The oldest update whose params sampled a token; None where that is not known of every row."""
    found: list[int] = []
    for item in items:
        if item.versions is None:
            return None
        if item.action_mask.any():
            found.append(int(item.versions[item.action_mask].min()))
    return min(found, default=None)
