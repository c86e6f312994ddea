"""Numbers per action token that a forward pass computes before the updates of a batch are made."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludic_train.planning import MicroBatch, plan_update, update_layout
from ludic_train.ranks import gathered, rank, scattered, world_size
from ludic_train.saw import SAWItem
from ludic_train.wire import plan_from_bytes, plan_to_bytes

Streams = Mapping[str, NDArray[np.float32]]
# The arrays [N] of a micro-batch, by the name they are to be attached under.
Score = Callable[[MicroBatch], Streams]


def attached(
    items: Sequence[SAWItem], score: Score, *, token_budget: int, packing: bool
) -> list[SAWItem]:
    """The items with what `score` gives for their action tokens attached, 0 off the mask.

    All ranks take part in scoring; items are those of rank 0, and so is the result, [] elsewhere.
    """

    def plan() -> tuple[tuple[MicroBatch, ...], ...]:
        return plan_update(
            items, token_budget=token_budget, world_size=world_size(), packing=packing
        )

    scored = [score(micro_batch) for micro_batch in scattered(plan, plan_to_bytes, plan_from_bytes)]
    own = {name: np.concatenate([part[name] for part in scored]) for name in scored[0]}
    by_rank = [_from_bytes(data) for data in gathered(_to_bytes(own))]
    if rank() != 0:
        return []
    layout = update_layout(
        items, token_budget=token_budget, world_size=world_size(), packing=packing
    )
    found: list[dict[str, NDArray[np.float32]]] = [_zeros(item, own) for item in items]
    for chunks, streams in zip(layout, by_rank, strict=True):
        members = [i for chunk in chunks for row in chunk for i in row]
        _spread(members, items, streams, found)
    return [
        replace(item, attachments={**item.attachments, **new})
        for item, new in zip(items, found, strict=True)
    ]


def _spread(
    members: Sequence[int],
    items: Sequence[SAWItem],
    streams: Streams,
    found: Sequence[Mapping[str, NDArray[np.float32]]],
) -> None:
    counts = [int(np.count_nonzero(items[i].action_mask)) for i in members]
    for name, values in streams.items():
        pieces = np.split(values, np.cumsum(counts)[:-1])
        for i, piece in zip(members, pieces, strict=True):
            found[i][name][items[i].action_mask] = piece


def _zeros(item: SAWItem, names: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    return {name: np.zeros(len(item.input_ids), np.float32) for name in names}


def _to_bytes(arrays: Streams) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _from_bytes(data: bytes) -> dict[str, NDArray[np.float32]]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
