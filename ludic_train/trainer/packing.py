"""Rows and chunks: which items of given lengths share a row, and which rows a forward pass.

The layout is a function of lengths alone, so that equal batches make equal micro-batches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

# Indices of the items that share a row, and rows that must stay in one chunk.
Row = list[int]
Bundle = list[Row]

# Packed rows are at least this wide. Attention is quadratic in the width, so several rows of some
# hundred tokens are faster than one long row, and still wide enough to leave few gaps.
PACKED_WIDTH = 256
# Rows of one item each are kept where at least this share of their cells holds tokens: what is
# left to win does not pay for the attention mask that packed rows need.
FULL_ENOUGH = 0.8


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
