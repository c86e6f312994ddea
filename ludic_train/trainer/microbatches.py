"""Micro-batches of an update: which rows share a forward pass, and the share of every token.

A row of a micro-batch holds one item, or several one after the other (packing). Rows go into one
forward pass padded to the widest of them, so a chunk of B rows costs B times its largest width.
Rows of one rollout stay in one chunk where they fit, because losses may compare whole rollouts.
The layout is a function of lengths alone, so that equal batches make equal micro-batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from ludic_train.algorithms.aggregation import Aggregation, by_sequence, sequence_ids, token_mean
from ludic_train.errors import EmptyBatch, OverlongRow
from ludic_train.trainer.optional_streams import grid_of_experts, masks_of, teacher_of, with_experts
from ludic_train.types import SAWItem

Array = NDArray[Any]
# Indices of the items that share a row, and rows that must stay in one chunk.
Row = list[int]
Bundle = list[Row]

# Packed rows are at least this wide. Attention is quadratic in the width, so several rows of some
# hundred tokens are faster than one long row, and still wide enough to leave few gaps.
PACKED_WIDTH = 256
# Rows of one item each are kept where at least this share of their cells holds tokens: what is
# left to win does not pay for the attention mask that packed rows need.
FULL_ENOUGH = 0.8
# Prefix of attachments among the arrays of a micro-batch.
ATTACHED = "attachments/"
# Arrays of a micro-batch whose first axis is of rows; those of all others is of action tokens.
OF_ROWS = frozenset({"input_ids", "position_ids", "experts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """B right-padded rows of T tokens, one or more items in each, and their N action tokens.

    input_ids: int64 [B, T]; padding is 0 and comes after the row, where causal attention never
        looks back from.
    position_ids: int64 [B, T] that start again at 0 with each item and with the padding, which
        keeps items from attending to each other; None where every row holds one item.
    row, column: int64 [N], where each action token stands in `input_ids`, in row-major order.
    item: int64 [N], index of the planned item that an action token is of.
    rollout: int64 [N], which of the `num_rollouts` rollouts an action token is of.
    whole: False if a rollout has action tokens in other micro-batches of the update too.
    weight, temperature: float32 [N].
    scale: float32 [N], the token's share of the whole update: 1 / (a denominator that was counted
        over all micro-batches of all ranks). Sums of scaled losses add up to the update's loss.
    behavior_logprobs: float32 [N] or None; versions: int64 [N] or None.
    mask_sizes: int64 [N], number of ids in the sampling mask of each action token, 0 for a token
        that was drawn from the whole vocabulary; mask_ids: int64, those of all tokens, in their
        order. Both are None where every token was drawn from the whole vocabulary.
    experts: int16 [B, T, layers, k], those of a mixture that each token went through, -1 where that
        is unknown; None without any.
    teacher_ids: int32 [N, k] and teacher_logprobs: float32 [N, k + 1], as `TopTokens`; or None.
    """

    input_ids: NDArray[np.int64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    item: NDArray[np.int64]
    rollout: NDArray[np.int64]
    num_rollouts: int
    weight: NDArray[np.float32]
    scale: NDArray[np.float32]
    temperature: NDArray[np.float32]
    whole: bool = True
    position_ids: NDArray[np.int64] | None = None
    behavior_logprobs: NDArray[np.float32] | None = None
    versions: NDArray[np.int64] | None = None
    mask_sizes: NDArray[np.int64] | None = None
    mask_ids: NDArray[np.int64] | None = None
    experts: NDArray[np.int16] | None = None
    teacher_ids: NDArray[np.int32] | None = None
    teacher_logprobs: NDArray[np.float32] | None = None
    attachments: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


def arrays_of(micro_batch: MicroBatch) -> dict[str, Array]:
    """Fields that are not None, as arrays by name; attachments under ATTACHED + their name."""
    fields = {name: getattr(micro_batch, name) for name in MicroBatch.__dataclass_fields__}
    attached = fields.pop("attachments")
    arrays = {name: np.asarray(value) for name, value in fields.items() if value is not None}
    return arrays | {ATTACHED + name: array for name, array in attached.items()}


def micro_batch_from(arrays: Mapping[str, Array]) -> MicroBatch:
    """The micro-batch of which `arrays_of` gives these arrays."""
    own: dict[str, Any] = {n: a for n, a in arrays.items() if not n.startswith(ATTACHED)}
    own["num_rollouts"], own["whole"] = int(own["num_rollouts"]), bool(own["whole"])
    attached = {n.removeprefix(ATTACHED): a for n, a in arrays.items() if n not in own}
    return MicroBatch(**own, attachments=attached)


def plan_to_bytes(micro_batches: Sequence[MicroBatch]) -> bytes:
    """The arrays of the micro-batches as one safetensors file, named NUMBER/NAME."""
    numbered = [(k, arrays_of(micro_batch)) for k, micro_batch in enumerate(micro_batches)]
    return save({f"{k}/{name}": a for k, arrays in numbered for name, a in arrays.items()})


def plan_from_bytes(data: bytes) -> tuple[MicroBatch, ...]:
    """The micro-batches that `plan_to_bytes` wrote; nothing in the bytes is executed."""
    found: dict[int, dict[str, Array]] = {}
    for key, array in load(data).items():
        # An attachment's name may hold a slash itself, so only the first one counts.
        k, _, name = key.partition("/")
        found.setdefault(int(k), {})[name] = array
    return tuple(micro_batch_from(found[k]) for k in sorted(found))


def plan_update(
    items: Sequence[SAWItem],
    *,
    token_budget: int,
    world_size: int = 1,
    aggregation: Aggregation = token_mean,
    packing: bool = True,
    router_replay: bool = False,
) -> tuple[tuple[MicroBatch, ...], ...]:
    """The micro-batches of one update, per rank; every rank gets equally many.

    aggregation: gives the scale of each token. packing: True if items may share rows.
    router_replay: the micro-batches hold the experts of their tokens.
    No micro-batch holds more than `token_budget` tokens, padding included. Ranks that would get
    fewer take a micro-batch without action tokens, so that none waits for another in a collective.
    Items without action tokens are left out. The result is a function of the arguments alone.
    Raises EmptyBatch where no item is left, and OverlongRow for an item that exceeds the budget by
    itself; UntrainableRollout for items without experts that are to be replayed.
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
    if router_replay:
        items = with_experts(items, kept)
    elif any(item.experts is not None for item in items):
        items = [replace(item, experts=None) for item in items]
    streams = _token_streams(items, aggregation)
    chunks = [
        [[members[k] for k in row] for row in chunk]
        for members in _by_streams(kept, streams)
        for chunk in chunks_of_rows(
            [len(items[i].input_ids) for i in members],
            by_sequence([items[i] for i in members]),
            token_budget=token_budget,
            world_size=world_size,
            packing=packing,
        )
    ]
    of_rollout = np.bincount(np.concatenate([stream["rollout"] for stream in streams]))
    made = [_collate(chunk, items, streams, of_rollout) for chunk in chunks]
    # Chunks come widest first and cost nearly the same, so dealing them out balances the ranks.
    ranks = [made[rank::world_size] for rank in range(world_size)]
    return tuple(
        tuple(own + [_without_tokens(made[0])] * (len(ranks[0]) - len(own))) for own in ranks
    )


def _token_streams(items: Sequence[SAWItem], aggregation: Aggregation) -> list[dict[str, Array]]:
    """Arrays [n] of the n action tokens of each item, by their names in `arrays_of`."""
    found = []
    known = zip(items, aggregation(items), sequence_ids(items), strict=True)
    is_masked = any(item.sampling_mask is not None for item in items)
    for i, (item, scale, rollout) in enumerate(known):
        at = np.flatnonzero(item.action_mask)
        versions = None if item.versions is None else item.versions.astype(np.int64)
        optional = {"behavior_logprobs": item.behavior_logprobs, "versions": versions}
        optional |= {ATTACHED + name: array for name, array in item.attachments.items()}
        further = masks_of(item) if is_masked else {}
        if item.teacher is not None:
            further |= teacher_of(item.teacher, len(at))
        found.append(
            {
                "column": at,
                "item": np.full(len(at), i),
                "rollout": np.full(len(at), rollout),
                "weight": item.weight[at],
                "scale": scale,
                "temperature": np.full(len(at), item.temperature, np.float32),
                **{name: array[at] for name, array in optional.items() if array is not None},
                **further,
            }
        )
    return found


def _by_streams(kept: Sequence[int], streams: Sequence[Mapping[str, Array]]) -> Iterable[list[int]]:
    """The items in sets that have the same streams, for micro-batches of their own.

    One item without log-probs would hide those of the others, in metrics and guards too.
    """
    sets: dict[tuple[tuple[str, tuple[int, ...]], ...], list[int]] = {}
    for i in kept:
        # Shapes too: a teacher may have given other numbers of tokens to other rows.
        forms = tuple(sorted((name, array.shape[1:]) for name, array in streams[i].items()))
        sets.setdefault(forms, []).append(i)
    return sets.values()


def _collate(
    rows: Sequence[Row],
    items: Sequence[SAWItem],
    streams: Sequence[Mapping[str, Array]],
    of_rollout: NDArray[np.int64],
) -> MicroBatch:
    """The micro-batch of these rows; `of_rollout` counts tokens per rollout of the update."""
    members = [i for row in rows for i in row]
    names = streams[members[0]]
    arrays = {name: np.concatenate([streams[i][name] for i in members]) for name in names}
    input_ids, position_ids, corners = _grid(rows, items)
    tokens = [len(streams[i]["item"]) for i in members]
    first_row, first_column = np.repeat(corners, tokens, axis=0).T
    # Numbered anew from 0: losses add up over rollouts in a tensor of `num_rollouts` cells.
    numbers, rollout = np.unique(arrays["rollout"], return_inverse=True)
    arrays |= {
        "input_ids": input_ids,
        "row": first_row.copy(),
        "column": arrays["column"] + first_column,
        "rollout": rollout,
        "num_rollouts": np.array(len(numbers)),
        "whole": np.array(len(rollout) == of_rollout[numbers].sum()),
    }
    if len(members) > len(rows):
        arrays["position_ids"] = position_ids
    if items[members[0]].experts is not None:
        arrays["experts"] = grid_of_experts([items[i] for i in members], corners, input_ids.shape)
    return micro_batch_from(arrays)


def _grid(
    rows: Sequence[Row], items: Sequence[SAWItem]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[int, int]]]:
    """Ids and positions [B, T], and where each item begins: (row, column)."""
    lengths = [len(item.input_ids) for item in items]
    shape = len(rows), widest(rows, lengths)
    input_ids, position_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    corners = []
    for r, row in enumerate(rows):
        column = 0
        for i in row:
            corners.append((r, column))
            input_ids[r, column : column + lengths[i]] = items[i].input_ids
            position_ids[r, column : column + lengths[i]] = np.arange(lengths[i])
            column += lengths[i]
        # Padding counts from 0 too, so that it looks like one more item and not like a longer one.
        position_ids[r, column:] = np.arange(shape[1] - column)
    return input_ids, position_ids, corners


def _without_tokens(like: MicroBatch) -> MicroBatch:
    """A micro-batch of two tokens, none of them an action, with the optional streams of `like`."""
    arrays = arrays_of(like).items()
    empty = {name: array[:0] for name, array in arrays if array.ndim and name not in OF_ROWS}
    # Two tokens, because the forward pass drops the last one of each row.
    ids = np.zeros((1, 2), np.int64)
    return micro_batch_from(
        {**empty, "input_ids": ids, "num_rollouts": np.array(1), "whole": np.array(True)}
    )


def chunks_of_rows(
    lengths: Sequence[int],
    together: Sequence[Sequence[int]],
    *,
    token_budget: int,
    world_size: int = 1,
    packing: bool = True,
) -> list[list[Row]]:
    """Chunks of rows that hold each item once, no chunk larger than `token_budget` cells.

    lengths: tokens of each item, none above the budget. Where `packing` is allowed and padding
    would waste much, several items share a row, first fit decreasing. The number of chunks is the
    least that the budget allows, rounded up to a multiple of `world_size` if there are rows enough;
    within that number, chunks are as equal as can be.
    together: a partition of the items into sets that share a chunk, unless a set alone exceeds the
        budget.
    """
    alone = _chunks(
        [[[i] for i in members] for members in together], lengths, token_budget, world_size
    )
    if not packing or sum(lengths) >= FULL_ENOUGH * cells(alone, lengths):
        return alone
    capacity = max(max(lengths), min(PACKED_WIDTH, token_budget))
    return _chunks(_packed(together, lengths, capacity), lengths, token_budget, world_size)


def first_fit(pieces: Sequence[Sequence[int]], lengths: Sequence[int], capacity: int) -> list[Row]:
    """Rows of at most `capacity` tokens: each piece, in order, goes to the first with room.

    pieces: indices of items that stay together, none wider than `capacity`. lengths: of all items.
    Takes time in the number of pieces times that of rows.
    """
    rows: list[Row] = []
    room: list[int] = []
    for piece in pieces:
        size = _width(piece, lengths)
        at = next((k for k, free in enumerate(room) if free >= size), len(rows))
        if at == len(rows):
            rows.append([])
            room.append(capacity)
        rows[at] += piece
        room[at] -= size
    return rows


def cells(chunks: Sequence[Sequence[Row]], lengths: Sequence[int]) -> int:
    """Tokens that the forward passes compute, padding included.

    lengths: tokens of each item, by the indices in the rows.
    """
    return sum(len(chunk) * widest(chunk, lengths) for chunk in chunks)


def _packed(sets: Sequence[Sequence[int]], lengths: Sequence[int], capacity: int) -> list[Bundle]:
    """Bundles of packed rows: sets that fit into a row share rows, larger ones have their own."""
    # Decreasing, because what is left for the small ones then fills the gaps of the large ones: at
    # most 11/9 of the fewest rows (Johnson 1973). min() breaks ties, so that the order is total.
    in_order = sorted(sets, key=lambda members: (-_width(members, lengths), min(members)))
    small = [members for members in in_order if _width(members, lengths) <= capacity]
    shared = [[row] for row in first_fit(small, lengths, capacity)]
    own = [
        first_fit([[i] for i in sorted(members, key=lambda i: (-lengths[i], i))], lengths, capacity)
        for members in in_order[: len(in_order) - len(small)]
    ]
    return shared + own


def _chunks(
    bundles: Sequence[Bundle], lengths: Sequence[int], token_budget: int, world_size: int
) -> list[list[Row]]:
    """Consecutive bundles, widest row first, in chunks of nearly equal cost."""
    fitting = [part for bundle in bundles for part in _fitting(bundle, lengths, token_budget)]
    # Neighbours in this order are of nearly one width, so that padding within a chunk is small.
    fitting.sort(key=lambda bundle: (-widest(bundle, lengths), min(map(min, bundle))))
    sizes = [(widest(bundle, lengths), len(bundle)) for bundle in fitting]
    fewest = len(_cut(sizes, token_budget))
    # Ranks without a chunk would compute a dummy meanwhile, so more chunks cost no time.
    allowed = fewest + -fewest % world_size
    low = max(wide * rows for wide, rows in sizes)
    # Filling each chunk to the budget leaves the last one nearly empty. The least budget that still
    # makes as many chunks makes them equal, and chunks never get more as the budget grows.
    budgets = range(low, token_budget)
    smallest = low + bisect_left(budgets, True, key=lambda b: len(_cut(sizes, b)) <= allowed)
    starts = _cut(sizes, smallest)
    return [
        [row for bundle in fitting[a:b] for row in bundle]
        for a, b in zip(starts, [*starts[1:], len(fitting)], strict=True)
    ]


def _fitting(bundle: Bundle, lengths: Sequence[int], token_budget: int) -> list[Bundle]:
    """The bundle itself, or its rows apart where they exceed the budget together."""
    if len(bundle) * widest(bundle, lengths) <= token_budget:
        return [bundle]
    return [[row] for row in bundle]


def _cut(sizes: Sequence[tuple[int, int]], token_budget: int) -> list[int]:
    """Start of each chunk, if each takes as many bundles (width, rows) as the budget allows."""
    starts: list[int] = []
    rows = chunk_width = 0
    for at, (wide, count) in enumerate(sizes):
        # Bundles come widest first, so the first of a chunk gives its width.
        if not starts or (rows + count) * chunk_width > token_budget:
            starts.append(at)
            rows, chunk_width = 0, wide
        rows += count
    return starts


def _width(row: Sequence[int], lengths: Sequence[int]) -> int:
    """Tokens in a row."""
    return sum(lengths[i] for i in row)


def widest(rows: Sequence[Row], lengths: Sequence[int]) -> int:
    """Tokens in the widest row."""
    return max(_width(row, lengths) for row in rows)
