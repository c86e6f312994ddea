"""Which rows share a forward pass, and what every action token counts for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludic_train.aggregation import Aggregation, token_mean
from ludic_train.errors import OverlongRow
from ludic_train.saw import SAWItem


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """B right-padded rows of T tokens, and their N action tokens in row-major order.

    input_ids: int64 [B, T]; padding is 0 and comes after the row, where causal attention never
        looks back from.
    row, column: int64 [N], where each action token stands in `input_ids`.
    weight, temperature: float32 [N].
    scale: float32 [N], the token's share of the whole update: 1 / (a denominator that was counted
        over all micro-batches of all ranks). Sums of scaled losses add up to the update's loss.
    behavior_logprobs: float32 [N] or None; versions: int64 [N] or None.
    """

    input_ids: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    weight: NDArray[np.float32]
    scale: NDArray[np.float32]
    temperature: NDArray[np.float32]
    behavior_logprobs: NDArray[np.float32] | None = None
    versions: NDArray[np.int64] | None = None
    attachments: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


def plan_update(
    items: Sequence[SAWItem],
    *,
    token_budget: int,
    world_size: int = 1,
    aggregation: Aggregation = token_mean,
) -> tuple[tuple[MicroBatch, ...], ...]:
    """The micro-batches of one update, per rank; every rank gets equally many.

    Rows are sorted by length and cut so that no micro-batch holds more than `token_budget` tokens,
    padding included. Ranks that would get fewer take a zero-scale copy, so that none waits for
    another in a collective. The result is a function of the arguments alone.
    Raises OverlongRow for a row that exceeds the budget by itself.
    """
    scales = aggregation(items)
    order = sorted(range(len(items)), key=lambda i: (-len(items[i].input_ids), i))
    micro_batches = [
        _collate([items[i] for i in chunk], [scales[i] for i in chunk])
        for chunk in _chunks(order, items, token_budget)
    ]
    while len(micro_batches) % world_size:
        last = micro_batches[-1]
        micro_batches.append(replace(last, scale=np.zeros_like(last.scale)))
    return tuple(tuple(micro_batches[rank::world_size]) for rank in range(world_size))


def _chunks(order: Sequence[int], items: Sequence[SAWItem], token_budget: int) -> list[list[int]]:
    chunks: list[list[int]] = []
    room = 0
    for i in order:
        length = len(items[i].input_ids)
        if length > token_budget:
            raise OverlongRow(
                f"a row has {length} tokens, more than the budget of {token_budget} per "
                "micro-batch; raise micro_token_budget or sample shorter episodes"
            )
        if room == 0:
            chunks.append([])
            room = token_budget // length
        chunks[-1].append(i)
        room -= 1
    return chunks


def _collate(items: Sequence[SAWItem], scales: Sequence[NDArray[np.float32]]) -> MicroBatch:
    input_ids = np.zeros((len(items), max(len(item.input_ids) for item in items)), np.int64)
    for padded, item in zip(input_ids, items, strict=True):
        padded[: len(item.input_ids)] = item.input_ids
    columns = [np.flatnonzero(item.action_mask) for item in items]
    counts = [len(column) for column in columns]

    def gather(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([array[c] for array, c in zip(arrays, columns, strict=True)])

    logprobs = [item.behavior_logprobs for item in items if item.behavior_logprobs is not None]
    versions = [item.versions for item in items if item.versions is not None]
    names = set.intersection(*(set(item.attachments) for item in items))
    return MicroBatch(
        input_ids=input_ids,
        row=np.repeat(np.arange(len(items)), counts),
        column=np.concatenate(columns),
        weight=gather([item.weight for item in items]),
        scale=np.concatenate(list(scales)).astype(np.float32),
        temperature=np.repeat(np.array([i.temperature for i in items], np.float32), counts),
        behavior_logprobs=gather(logprobs) if len(logprobs) == len(items) else None,
        versions=gather(versions).astype(np.int64) if len(versions) == len(items) else None,
        attachments={
            name: gather([item.attachments[name] for item in items]) for name in sorted(names)
        },
    )
