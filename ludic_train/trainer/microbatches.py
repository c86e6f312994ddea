"""Micro-batches of an update: rows that share a forward pass, and the share of every token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludic_train.algorithms.aggregation import Aggregation, Scales, token_mean
from ludic_train.algorithms.sequences import by_sequence, sequence_ids
from ludic_train.errors import EmptyBatch, OverlongRow
from ludic_train.trainer.packing import Row, chunks_of_rows, width
from ludic_train.types import SAWItem

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """B right-padded rows of T tokens, one or more items in each, and their N action tokens.

    input_ids: int64 [B, T]; padding is 0 and comes after the row, where causal attention never
        looks back from.
    position_ids: int64 [B, T] that start again at 0 with each item and with the padding, which
        keeps items from attending to each other; None where every row holds one item.
    row, column: int64 [N], where each action token stands in `input_ids`, in row-major order.
    rollout: int64 [N], which of the `num_rollouts` rollouts an action token is of.
    whole: False if a rollout has action tokens in other micro-batches of the update too.
    weight, temperature: float32 [N].
    scale: float32 [N], the token's share of the whole update: 1 / (a denominator that was counted
        over all micro-batches of all ranks). Sums of scaled losses add up to the update's loss.
    behavior_logprobs: float32 [N] or None; versions: int64 [N] or None.
    """

    input_ids: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    rollout: NDArray[np.int64]
    num_rollouts: int
    weight: NDArray[np.float32]
    scale: NDArray[np.float32]
    temperature: NDArray[np.float32]
    whole: bool = True
    position_ids: NDArray[np.int64] | None = None
    behavior_logprobs: NDArray[np.float32] | None = None
    versions: NDArray[np.int64] | None = None
    attachments: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


def plan_update(
    items: Sequence[SAWItem],
    *,
    token_budget: int,
    world_size: int = 1,
    aggregation: Aggregation = token_mean,
    packing: bool = True,
) -> tuple[tuple[MicroBatch, ...], ...]:
    """The micro-batches of one update, per rank; every rank gets equally many.

    No micro-batch holds more than `token_budget` tokens, padding included. Ranks that would get
    fewer take a micro-batch without action tokens, so that none waits for another in a collective.
    Items without action tokens are left out. The result is a function of the arguments alone.
    Raises EmptyBatch where no item is left, and OverlongRow for an item that exceeds the budget by
    itself.
    """
    layout = update_layout(items, token_budget=token_budget, world_size=world_size, packing=packing)
    known = _Known(items, aggregation(items), _common_streams(items), sequence_ids(items))
    ranks = [[_collate(chunk, known) for chunk in rank] for rank in layout]
    dummy = _without_tokens(ranks[0][0])
    most = len(ranks[0])
    return tuple(tuple(rank + [dummy] * (most - len(rank))) for rank in ranks)


def update_layout(
    items: Sequence[SAWItem], *, token_budget: int, world_size: int = 1, packing: bool = True
) -> list[list[list[Row]]]:
    """The indices of `items` by rank, micro-batch and row; the first rank has the most.

    Raises as `plan_update` does.
    """
    kept = [i for i, item in enumerate(items) if item.action_mask.any()]
    if not kept:
        raise EmptyBatch(f"of {len(items)} rows, none has a token that was sampled")
    lengths = [len(items[i].input_ids) for i in kept]
    if max(lengths) > token_budget:
        raise OverlongRow(
            f"a row has {max(lengths)} tokens, more than the budget of {token_budget} per "
            "micro-batch; raise micro_token_budget or sample shorter episodes"
        )
    found = chunks_of_rows(
        lengths,
        token_budget=token_budget,
        world_size=world_size,
        packing=packing,
        together=by_sequence([items[i] for i in kept]),
    )
    chunks = [[[kept[k] for k in row] for row in chunk] for chunk in found]
    return [chunks[rank::world_size] for rank in range(world_size)]


def _common_streams(items: Sequence[SAWItem]) -> frozenset[str]:
    """The optional arrays that every item has, so that all micro-batches are of one form."""
    names = set.intersection(*(set(item.attachments) for item in items))
    if all(item.behavior_logprobs is not None for item in items):
        names.add("behavior_logprobs")
    if all(item.versions is not None for item in items):
        names.add("versions")
    return frozenset(names)


@dataclass(frozen=True)
class _Known:
    """Items of an update with the scales of their action tokens and their rollouts' numbers.

    streams: the optional arrays that every item has, so that all micro-batches are of one form.
    """

    items: Sequence[SAWItem]
    scales: Scales
    streams: frozenset[str]
    rollouts: Sequence[int]

    @cached_property
    def tokens(self) -> NDArray[np.int64]:
        """Action tokens of each rollout in the whole update."""
        counts = [len(scale) for scale in self.scales]
        return np.bincount(self.rollouts, counts).astype(np.int64)


def _collate(rows: Sequence[Row], known: _Known) -> MicroBatch:
    members = [i for row in rows for i in row]
    items = [known.items[i] for i in members]
    found = [np.flatnonzero(item.action_mask) for item in items]
    counts = [len(positions) for positions in found]
    numbers, rollout = np.unique([known.rollouts[i] for i in members], return_inverse=True)

    def gather(arrays: Iterator[Array]) -> Array:
        return np.concatenate([array[at] for array, at in zip(arrays, found, strict=True)])

    input_ids, position_ids, corners = _grid(rows, known.items)
    packed = len(members) > len(rows)
    attached = sorted(known.streams - {"behavior_logprobs", "versions"})
    return MicroBatch(
        input_ids=input_ids,
        position_ids=position_ids if packed else None,
        row=np.repeat(np.array([row for row, _ in corners]), counts),
        column=np.concatenate([at + c for at, (_, c) in zip(found, corners, strict=True)]),
        rollout=np.repeat(rollout, counts),
        num_rollouts=len(numbers),
        whole=sum(counts) == int(known.tokens[numbers].sum()),
        weight=gather(item.weight for item in items),
        scale=np.concatenate([known.scales[i] for i in members]),
        temperature=np.repeat(np.array([item.temperature for item in items], np.float32), counts),
        behavior_logprobs=gather(_present(item.behavior_logprobs) for item in items)
        if "behavior_logprobs" in known.streams
        else None,
        versions=gather(_present(item.versions) for item in items).astype(np.int64)
        if "versions" in known.streams
        else None,
        attachments={name: gather(item.attachments[name] for item in items) for name in attached},
    )


def _grid(
    rows: Sequence[Row], items: Sequence[SAWItem]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[int, int]]]:
    """Ids and positions [B, T], and where each item begins: (row, column)."""
    lengths = [len(item.input_ids) for item in items]
    shape = len(rows), max(width(row, lengths) for row in rows)
    input_ids, position_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    corners = []
    for r, row in enumerate(rows):
        column = 0
        for i in row:
            corners.append((r, column))
            input_ids[r, column : column + lengths[i]] = items[i].input_ids
            position_ids[r, column : column + lengths[i]] = np.arange(lengths[i])
            column += lengths[i]
        position_ids[r, column:] = np.arange(shape[1] - column)
    return input_ids, position_ids, corners


def _present(array: Array | None) -> Array:
    assert array is not None
    return array


def _without_tokens(like: MicroBatch) -> MicroBatch:
    """A micro-batch of two tokens, none of them an action, with the optional streams of `like`."""

    def none(array: Array | None) -> Array | None:
        return None if array is None else array[:0]

    return replace(
        like,
        input_ids=np.zeros((1, 2), np.int64),
        position_ids=None,
        num_rollouts=1,
        whole=True,
        row=like.row[:0],
        column=like.column[:0],
        rollout=like.rollout[:0],
        weight=like.weight[:0],
        scale=like.scale[:0],
        temperature=like.temperature[:0],
        behavior_logprobs=none(like.behavior_logprobs),
        versions=none(like.versions),
        attachments={name: array[:0] for name, array in like.attachments.items()},
    )
