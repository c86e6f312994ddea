"""A complete group on its way from an actor to a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ludic_train.errors import BadGroup
from ludic_train.metrics import Metric
from ludic_train.saw import SAWItem


@dataclass(frozen=True, slots=True, kw_only=True)
class SAWGroup:
    """The rows of rollouts that were compared with each other, with their credit.

    key: no two groups share one, whoever played them; pushed twice, it is trained on once.
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


def check_item(item: SAWItem) -> None:
    """Raise BadGroup, with the reason, for a row whose arrays do not fit together."""
    length = len(item.input_ids)
    streams = {
        "action_mask": item.action_mask,
        "weight": item.weight,
        "behavior_logprobs": item.behavior_logprobs,
        "versions": item.versions,
        **item.attachments,
    }
    for name, stream in streams.items():
        if stream is not None and len(stream) != length:
            raise BadGroup(f"{name} has {len(stream)} values for {length} tokens")
    if not length or item.action_mask[0]:
        raise BadGroup(f"a row of {length} tokens must begin with one that was not sampled")
    if (lowest := int(item.input_ids.min())) < 0:
        raise BadGroup(f"a token id is {lowest}")
    if not (np.isfinite(item.temperature) and item.temperature > 0):
        raise BadGroup(f"temperature={item.temperature} must be finite and greater than 0")
    for name in ("weight", "behavior_logprobs", *item.attachments):
        stream = streams[name]
        if stream is not None and not np.isfinite(stream).all():
            raise BadGroup(f"{name} holds a value that is not finite")
    if item.versions is not None and (item.versions[item.action_mask] < 0).any():
        raise BadGroup("versions lacks that of a sampled token")
