"""Which items share a row, and which rows share a forward pass: functions of lengths alone.

A row is a list of item indices. Rows go into one forward pass padded to the widest of them, so a
chunk of B rows costs B times its largest width.
"""

from __future__ import annotations

from collections.abc import Sequence

Row = list[int]

# Packed rows are at least this wide. Attention is quadratic in the width, so several rows of some
# hundred tokens are faster than one long row, and still wide enough to leave few gaps.
PACKED_WIDTH = 256
# Rows of one item each are kept where at least this share of their cells holds tokens: what is
# left to win does not pay for the attention mask that packed rows need.
FULL_ENOUGH = 0.8


def chunks_of_rows(
    lengths: Sequence[int], *, token_budget: int, world_size: int = 1, packing: bool = True
) -> list[list[Row]]:
    """Chunks of rows that hold each item once, no chunk larger than `token_budget` cells.

    lengths: tokens of each item, none above the budget. Where `packing` is allowed and padding
    would waste much, several items share a row, first fit decreasing. The number of chunks is the
    least that the budget allows, rounded up to a multiple of `world_size` if there are rows enough;
    within that number, chunks are as equal as can be.
    """
    longest_first = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    alone = _chunks([[i] for i in longest_first], lengths, token_budget, world_size)
    if not packing or sum(lengths) >= FULL_ENOUGH * cells(alone, lengths):
        return alone
    capacity = max(lengths[longest_first[0]], min(PACKED_WIDTH, token_budget))
    packed = first_fit(longest_first, lengths, capacity)
    packed.sort(key=lambda row: -width(row, lengths))
    return _chunks(packed, lengths, token_budget, world_size)


def first_fit(order: Sequence[int], lengths: Sequence[int], capacity: int) -> list[Row]:
    """Rows of at most `capacity` tokens: each item, in `order`, goes to the first with room."""
    rows: list[Row] = []
    room: list[int] = []
    for i in order:
        at = next((k for k, free in enumerate(room) if free >= lengths[i]), len(rows))
        if at == len(rows):
            rows.append([])
            room.append(capacity)
        rows[at].append(i)
        room[at] -= lengths[i]
    return rows


def width(row: Row, lengths: Sequence[int]) -> int:
    """Tokens in a row."""
    return sum(lengths[i] for i in row)


def cells(chunks: Sequence[Sequence[Row]], lengths: Sequence[int]) -> int:
    """Tokens that the forward passes compute, padding included."""
    return sum(len(chunk) * max(width(row, lengths) for row in chunk) for chunk in chunks)


def _chunks(
    rows: list[Row], lengths: Sequence[int], token_budget: int, world_size: int
) -> list[list[Row]]:
    """Consecutive rows, widest first, in chunks of nearly equal cost."""
    widths = [width(row, lengths) for row in rows]
    fewest = len(_cut(widths, token_budget))
    allowed = fewest + -fewest % world_size
    low, high = max(widths, default=1), token_budget
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_cut(widths, middle)) <= allowed else (middle + 1, high)
    starts = _cut(widths, high)
    return [rows[a:b] for a, b in zip(starts, [*starts[1:], len(rows)], strict=True)]


def _cut(widths: Sequence[int], token_budget: int) -> list[int]:
    """Where chunks start, if each takes as many rows as the budget allows."""
    starts, at = [], 0
    while at < len(widths):
        starts.append(at)
        at += token_budget // widths[at]
    return starts
