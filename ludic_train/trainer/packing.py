"""Which items share a row, and which rows share a forward pass: functions of lengths alone.

A row is a list of item indices. Rows go into one forward pass padded to the widest of them, so a
chunk of B rows costs B times its largest width. Rows of one rollout stay in one chunk where they
fit, because losses may compare whole rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence

Row = list[int]
# Rows that must stay in one chunk.
Bundle = list[Row]

# Packed rows are at least this wide. Attention is quadratic in the width, so several rows of some
# hundred tokens are faster than one long row, and still wide enough to leave few gaps.
PACKED_WIDTH = 256
# Rows of one item each are kept where at least this share of their cells holds tokens: what is
# left to win does not pay for the attention mask that packed rows need.
FULL_ENOUGH = 0.8


def chunks_of_rows(
    lengths: Sequence[int],
    *,
    token_budget: int,
    world_size: int = 1,
    packing: bool = True,
    together: Sequence[Sequence[int]] | None = None,
) -> list[list[Row]]:
    """Chunks of rows that hold each item once, no chunk larger than `token_budget` cells.

    lengths: tokens of each item, none above the budget. Where `packing` is allowed and padding
    would waste much, several items share a row, first fit decreasing. The number of chunks is the
    least that the budget allows, rounded up to a multiple of `world_size` if there are rows enough;
    within that number, chunks are as equal as can be.
    together: a partition of the items into sets that share a chunk, unless a set alone exceeds the
        budget; None keeps no items together.
    """
    sets = [[i] for i in range(len(lengths))] if together is None else together
    alone = _chunks([[[i] for i in members] for members in sets], lengths, token_budget, world_size)
    if not packing or sum(lengths) >= FULL_ENOUGH * cells(alone, lengths):
        return alone
    capacity = max(max(lengths), min(PACKED_WIDTH, token_budget))
    return _chunks(_packed(sets, lengths, capacity), lengths, token_budget, world_size)


def first_fit(pieces: Sequence[Sequence[int]], lengths: Sequence[int], capacity: int) -> list[Row]:
    """Rows of at most `capacity` tokens: each piece, in order, goes to the first with room."""
    rows: list[Row] = []
    room: list[int] = []
    for piece in pieces:
        size = width(piece, lengths)
        at = next((k for k, free in enumerate(room) if free >= size), len(rows))
        if at == len(rows):
            rows.append([])
            room.append(capacity)
        rows[at] += piece
        room[at] -= size
    return rows


def width(row: Sequence[int], lengths: Sequence[int]) -> int:
    """Tokens in a row."""
    return sum(lengths[i] for i in row)


def cells(chunks: Sequence[Sequence[Row]], lengths: Sequence[int]) -> int:
    """Tokens that the forward passes compute, padding included."""
    return sum(len(chunk) * _widest(chunk, lengths) for chunk in chunks)


def _packed(sets: Sequence[Sequence[int]], lengths: Sequence[int], capacity: int) -> list[Bundle]:
    """Bundles of packed rows: sets that fit into a row share rows, larger ones have their own."""
    in_order = sorted(sets, key=lambda members: (-width(members, lengths), min(members)))
    small = [members for members in in_order if width(members, lengths) <= capacity]
    large = [members for members in in_order if width(members, lengths) > capacity]
    shared = [[row] for row in first_fit(small, lengths, capacity)]
    own = [
        first_fit([[i] for i in _longest_first(members, lengths)], lengths, capacity)
        for members in large
    ]
    return shared + own


def _chunks(
    bundles: Sequence[Bundle], lengths: Sequence[int], token_budget: int, world_size: int
) -> list[list[Row]]:
    """Consecutive bundles, widest row first, in chunks of nearly equal cost."""
    fitting = [part for bundle in bundles for part in _fitting(bundle, lengths, token_budget)]
    fitting.sort(key=lambda bundle: (-_widest(bundle, lengths), min(map(min, bundle))))
    sizes = [(_widest(bundle, lengths), len(bundle)) for bundle in fitting]
    fewest = len(_cut(sizes, token_budget))
    allowed = fewest + -fewest % world_size
    low = max((wide * rows for wide, rows in sizes), default=1)
    high = token_budget
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_cut(sizes, middle)) <= allowed else (middle + 1, high)
    starts = _cut(sizes, high)
    return [
        [row for bundle in fitting[a:b] for row in bundle]
        for a, b in zip(starts, [*starts[1:], len(fitting)], strict=True)
    ]


def _fitting(bundle: Bundle, lengths: Sequence[int], token_budget: int) -> list[Bundle]:
    """The bundle itself, or its rows apart where they exceed the budget together."""
    if len(bundle) * _widest(bundle, lengths) <= token_budget:
        return [bundle]
    return [[row] for row in bundle]


def _widest(rows: Sequence[Row], lengths: Sequence[int]) -> int:
    return max(width(row, lengths) for row in rows)


def _longest_first(members: Sequence[int], lengths: Sequence[int]) -> list[int]:
    return sorted(members, key=lambda i: (-lengths[i], i))


def _cut(sizes: Sequence[tuple[int, int]], token_budget: int) -> list[int]:
    """Where chunks start, if each takes as many bundles (width, rows) as the budget allows."""
    starts: list[int] = []
    rows = chunk_width = 0
    for at, (wide, count) in enumerate(sizes):
        # Bundles come widest first, so the first of a chunk gives its width.
        if not starts or (rows + count) * chunk_width > token_budget:
            starts.append(at)
            rows, chunk_width = 0, wide
        rows += count
    return starts
