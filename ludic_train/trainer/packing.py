"""Rows and chunks: which items share tokens or a row, and which rows a forward pass.

Items of equal tokens stand in a row once: each reads its log-probs there, so that no loss can tell.
Items with equal prompts are a family, whose prompt is computed once. It stands in a row as the
prompt, followed by the rest of each member:

    p0 p1 p2 | p2 a0 a1 | p2 b0 | p2 c0 c1 c2

The rests begin with a copy of the prompt's last token, whose logits predict the first sampled one.
Positions count on from the prompt in each (0 1 2 | 2 3 4 | 2 3 | 2 3 4 5), and a token attends to
its own piece and to the prompt before the copy, so that each member has the log-probs that it has
alone. The layout is a function of lengths, prompts and the model's width alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ludic_train.algorithms.aggregation import by_sequence
from ludic_train.types import SAWItem

# Indices of the items that share a row, and rows that must stay in one chunk.
Row = list[int]
Bundle = list[Row]

# Widths of packed rows, beside that of the longest item. Attention is quadratic in the width, so
# several rows of some hundred tokens are faster than one long row; narrower ones leave more gaps.
PACKED_WIDTHS = (256, 128)
# Rows of one item each are kept where at least this share of their cells holds tokens: what is
# left to win does not pay for the attention mask that packed rows need.
FULL_ENOUGH = 0.8
# Tokens of a row from which masked attention costs more than all else, in models up to a width of
# 256 (measured with 2 layers on a CPU). In wider ones they grow with the width, because products
# grow with its square, and attention with the width itself.
ATTENTION_TOKENS, ATTENTION_WIDTH = 1000, 256
# An item joins a family where that costs at most this share of a row of its own: masks and uneven
# rows cost something too.
WORTH_JOINING = 0.8


@dataclass(frozen=True, slots=True)
class Family:
    """Items that stand in a row together.

    members: sets of items of equal tokens, by their indices.
    shared: tokens of the prompt that all of them begin with; 0 for a single member.
    """

    members: tuple[tuple[int, ...], ...]
    shared: int = 0

    @property
    def items(self) -> list[int]:
        """The indices of all items."""
        return [i for equal in self.members for i in equal]

    def width(self, lengths: Sequence[int]) -> int:
        """Cells that the family takes, for the lengths of all items."""
        rests = (lengths[i] - max(self.shared - 1, 0) for i, *_ in self.members)
        return self.shared + sum(rests)


def attention_tokens(width: int) -> int:
    """Tokens of a row from which masked attention costs more than all else in a model.

    width: of its hidden states.
    """
    return ATTENTION_TOKENS * max(width, ATTENTION_WIDTH) // ATTENTION_WIDTH


def equal_rows(
    items: Sequence[SAWItem], indices: Sequence[int], block: Sequence[int]
) -> list[tuple[int, ...]]:
    """A partition of the items into sets of equal tokens within a block.

    block: of each item, by its index. Items whose experts are known stay alone.
    """
    sets: dict[tuple[int, bytes], list[int]] = {}
    for i in indices:
        key = (block[i], items[i].input_ids.tobytes()) if items[i].experts is None else (i, b"")
        sets.setdefault(key, []).append(i)
    return [tuple(equal) for equal in sets.values()]


def families(
    items: Sequence[SAWItem],
    rows: Sequence[tuple[int, ...]],
    block: Sequence[int],
    *,
    token_budget: int,
    attention: int = ATTENTION_TOKENS,
) -> list[Family]:
    """A partition of the `equal_rows` by their prompts, each family at most `token_budget` wide.

    attention: see `attention_tokens`. Items whose experts are known stay alone.
    """
    of_prompt: dict[tuple[int, bytes], list[tuple[int, ...]]] = {}
    for equal in rows:
        item = items[equal[0]]
        prompt = item.input_ids[: item.action_mask.argmax()].tobytes()
        key = (block[equal[0]], prompt) if item.experts is None else (equal[0], b"")
        of_prompt.setdefault(key, []).append(equal)
    lengths = [len(item.input_ids) for item in items]
    result: list[Family] = []
    for first, *others in of_prompt.values():
        prompt_tokens = int(items[first[0]].action_mask.argmax())
        # Members begin with the prompt's last token.
        copied = max(prompt_tokens - 1, 0)
        members, width = [first], lengths[first[0]]
        for equal in others:
            tokens = lengths[equal[0]]
            wider = width + tokens - copied
            if len(members) == 1:
                wider += prompt_tokens - copied
            # Causal attention without a mask leaves out half of the pairs.
            alone = tokens * (1 + tokens / (2 * attention))
            more = _cost(wider, attention) - _cost(width, attention)
            # Each is taken in where that costs less than a row of its own.
            if wider <= token_budget and more <= WORTH_JOINING * alone:
                members.append(equal)
                width = wider
            else:
                result.append(_family(members, prompt_tokens))
                members, width = [equal], tokens
        result.append(_family(members, prompt_tokens))
    return result


def _family(members: Sequence[tuple[int, ...]], prompt_tokens: int) -> Family:
    return Family(tuple(members), prompt_tokens if len(members) > 1 else 0)


def blocks_of_rollouts(items: Sequence[SAWItem], parts: int) -> list[int]:
    """Number of the block of each item, in which items may share tokens.

    Rollouts of several rows are in `parts` blocks one after the other, as equal as can be; those of
    one row, which no chunk can tear apart, are in one more.
    """
    block = [-1] * len(items)
    long = [rows for rows in by_sequence(items) if len(rows) > 1]
    for number, rows in enumerate(long):
        for i in rows:
            block[i] = number * parts // len(long)
    return block


def linked(partition: Sequence[Family], rollout: Sequence[int]) -> list[list[int]]:
    """Families in sets that have no rollout in common, by their indices.

    rollout: of each item, by its index.
    """
    # A forest in which each family points to one before it, or to itself.
    parent = list(range(len(partition)))

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = k = parent[parent[k]]
        return k

    first: dict[int, int] = {}
    for k, family in enumerate(partition):
        for i in family.items:
            low, high = sorted((root(first.setdefault(rollout[i], k)), root(k)))
            parent[high] = low
    sets: dict[int, list[int]] = {}
    for k in range(len(partition)):
        sets.setdefault(root(k), []).append(k)
    return list(sets.values())


def _cost(width: int, attention: int) -> float:
    """Time of a row with masked attention, in that of a token without attention."""
    return width * (1 + width / attention)


def mask_of_positions(position_ids: Tensor) -> Tensor:
    """True where a token attends to another, bool [B, 1, T, T] (of a query, to a key).

    position_ids: int64 [B, T]. An item starts at 0; where positions jump back to s > 0, another
    continuation of its first s tokens starts. Tokens attend to earlier ones of their own piece and,
    in a continuation, to those s tokens.

    An item of two tokens, and two other continuations of its first one:

    >>> mask_of_positions(torch.tensor([[0, 1, 1, 2, 1, 2]]))[0, 0].int()
    tensor([[1, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0],
            [1, 0, 1, 0, 0, 0],
            [1, 0, 1, 1, 0, 0],
            [1, 0, 0, 0, 1, 0],
            [1, 0, 0, 0, 1, 1]], dtype=torch.int32)
    """
    ones = torch.ones_like(position_ids[:, :1], dtype=torch.bool)
    starts = torch.cat([ones, position_ids.diff(dim=1) != 1], 1)
    column = torch.arange(position_ids.shape[1], device=position_ids.device)
    first = position_ids.gather(1, torch.where(starts, column, 0).cummax(1).values)
    piece, item = starts.cumsum(1), (starts & (position_ids == 0)).cumsum(1)
    same_piece = piece[:, :, None] == piece[:, None, :]
    before = (position_ids[:, None, :] < first[:, :, None]) & (first[:, None, :] == 0)
    of_item = item[:, :, None] == item[:, None, :]
    earlier = column[None, :] <= column[:, None]
    return ((same_piece | (before & of_item)) & earlier)[:, None]


def chunks_of_rows(
    lengths: Sequence[int],
    together: Sequence[Sequence[int]],
    *,
    token_budget: int,
    world_size: int = 1,
    packing: bool = True,
    attention: int = ATTENTION_TOKENS,
) -> list[list[Row]]:
    """Chunks of rows that hold each item once, no chunk larger than `token_budget` cells.

    attention: see `attention_tokens`.
    lengths: tokens of each item, none above the budget. Where `packing` is allowed and padding
    would waste much, several items share a row, first fit decreasing, in rows of the width that
    costs least; longer items keep rows of their own, which need no mask. The number of chunks is
    the least that the budget allows, rounded up to a multiple of `world_size` if there are rows
    enough; within that number, chunks are as equal as can be.
    together: a partition of the items into sets that share a chunk, unless a set alone exceeds the
        budget.
    """
    alone = _chunks(
        [[[i] for i in members] for members in together], lengths, token_budget, world_size
    )
    if not packing or sum(lengths) >= FULL_ENOUGH * cells(alone, lengths):
        return alone
    widths = {max(max(lengths), PACKED_WIDTHS[0]), *PACKED_WIDTHS}
    layouts = [
        _chunks(_packed(together, lengths, width), lengths, token_budget, world_size)
        for width in sorted({min(width, token_budget) for width in widths}, reverse=True)
    ]

    def cost(chunks: Sequence[Sequence[Row]]) -> float:
        """Time of the forward passes, in that of a token without attention."""
        total = 0.0
        for chunk in chunks:
            wide = widest(chunk, lengths)
            # Causal attention without a mask leaves out half of the pairs.
            masked, each = any(len(row) > 1 for row in chunk), _cost(wide, attention)
            total += len(chunk) * (each if masked else (wide + each) / 2)
        return total

    return min([*layouts, alone], key=cost)


def first_fit(pieces: Sequence[Sequence[int]], lengths: Sequence[int], capacity: int) -> list[Row]:
    """Rows of at most `capacity` tokens: each piece, in order, goes to the first with room.

    pieces: indices of items that stay together; one wider than `capacity` has a row of its own.
    lengths: of all items.
    Takes time in the number of pieces times that of rows.

    >>> first_fit([[0], [1], [2]], lengths=[5, 4, 3], capacity=8)
    [[0, 2], [1]]
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
    separate = [
        first_fit([[i] for i in sorted(members, key=lambda i: (-lengths[i], i))], lengths, capacity)
        for members in in_order[: len(in_order) - len(small)]
    ]
    return shared + separate


def _chunks(
    bundles: Sequence[Bundle], lengths: Sequence[int], token_budget: int, world_size: int
) -> list[list[Row]]:
    """Consecutive bundles, widest row first, in chunks of nearly equal cost."""
    fitting: list[Bundle] = []
    for bundle in bundles:
        # Rows that exceed the budget together go apart.
        fits = len(bundle) * widest(bundle, lengths) <= token_budget
        fitting += [bundle] if fits else [[row] for row in bundle]
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
    return sum(lengths[i] for i in row)


def widest(rows: Sequence[Row], lengths: Sequence[int]) -> int:
    """Tokens in the widest row."""
    return max(_width(row, lengths) for row in rows)
