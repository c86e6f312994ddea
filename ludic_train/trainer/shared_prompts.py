"""Items with equal prompts, whose tokens are computed once for all of them.

A family stands in a row as its prompt, followed by the rest of each member:

    p0 p1 p2 | p2 a0 a1 | p2 b0 | p2 c0 c1 c2

The rests begin with a copy of the prompt's last token, whose logits predict the first sampled one.
Positions count on from the prompt in each (0 1 2 | 2 3 4 | 2 3 | 2 3 4 5), and a token attends to
its own piece and to the prompt before the copy. So the log-probs of each member are those it has
alone, and a gradient of the prompt is the sum of those of all members.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ludic_train.algorithms.aggregation import by_sequence
from ludic_train.types import SAWItem

# Tokens of a row from which attention costs more than all else, in a small model: in larger ones
# it costs less, and more members could share a row.
ATTENTION_TOKENS = 1500


@dataclass(frozen=True, slots=True)
class Family:
    """Items that stand in a row together.

    members: their indices. shared: tokens of the prompt that all of them begin with; 0 for a single
    item.
    """

    members: tuple[int, ...]
    shared: int = 0

    def width(self, lengths: Sequence[int]) -> int:
        """Cells that the family takes, for the lengths of all items."""
        rests = (lengths[i] - max(self.shared - 1, 0) for i in self.members)
        return self.shared + sum(rests)


def families(
    items: Sequence[SAWItem], kept: Sequence[int], *, token_budget: int, share_prompts: bool
) -> list[Family]:
    """A partition of the kept items, each family at most `token_budget` tokens wide.

    Members are the only rows of their rollouts: rows of one rollout have prompts of their own, and
    have to stay in one chunk. Items whose experts are known stay alone.
    """
    if not share_prompts or any(items[i].experts is not None for i in kept):
        return [Family((i,)) for i in kept]
    single = {rows[0] for rows in by_sequence(items) if len(rows) == 1}
    starts = {i: int(items[i].action_mask.argmax()) for i in kept}
    of_prompt: dict[tuple[int, bytes], list[int]] = {}
    for i in kept:
        prompt = items[i].input_ids[: starts[i]].tobytes()
        of_prompt.setdefault((-1, prompt) if i in single else (i, b""), []).append(i)
    lengths = [len(item.input_ids) for item in items]
    return [
        family
        for members in of_prompt.values()
        for family in _split(members, starts[members[0]], lengths, token_budget)
    ]


def _split(
    members: Sequence[int], shared: int, lengths: Sequence[int], token_budget: int
) -> Iterable[Family]:
    """Families of the members, each taken in where that costs less than a row of its own."""
    family, width = Family((members[0],)), lengths[members[0]]
    for i in members[1:]:
        joined = Family((*family.members, i), shared)
        wider = joined.width(lengths)
        if wider <= token_budget and _cost(wider) - _cost(width) < _cost(lengths[i]):
            family, width = joined, wider
        else:
            yield family
            family, width = Family((i,)), lengths[i]
    yield family


def _cost(width: int) -> float:
    """Time of a row, in that of a token without attention."""
    return width * (1 + width / ATTENTION_TOKENS)
