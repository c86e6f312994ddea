"""Micro-batches of an update: which rows share a forward pass, and the share of every token.

A row holds one item, or several one after the other (packing). Items of equal tokens share them,
and items of equal prompts may share those. B rows in one forward pass cost B times the largest
width. Rows of one rollout stay in one chunk where they fit, because losses may compare whole
rollouts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from ludic_gym.sampling import unpacked_masks
from ludic_train.algorithms.aggregation import Aggregation, sequence_ids, token_mean
from ludic_train.errors import EmptyBatch, OverlongRow, UntrainableRollout
from ludic_train.expert_text import UNKNOWN
from ludic_train.trainer.packing import (
    ATTENTION_TOKENS,
    Family,
    blocks_of_rollouts,
    chunks_of_rows,
    equal_rows,
    families,
    linked,
)
from ludic_train.types import SAWItem, TopTokens

Array = NDArray[Any]
# Rows of a forward pass.
Chunk = list[list[Family]]
# Prefix of attachments among the arrays of a micro-batch.
ATTACHED = "attachments/"
# Arrays of a micro-batch whose first axis is of rows; those of all others is of action tokens.
OF_ROWS = frozenset({"input_ids", "position_ids", "experts"})
# The highest log-prob, 0, with room for rounding.
MOST_LOGPROB = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """B right-padded rows of T tokens, one or more items in each, and their N action tokens.

    input_ids: int64 [B, T]; padding is 0 and comes after the row, where causal attention never
        looks back from.
    position_ids: int64 [B, T] that start again at 0 with each item and with the padding, which
        keeps items from attending to each other; None where every row holds one item.
    shares_prompts: True if items share prompts in some row; the others of a prompt start again at
        its last position.
    row, column: int64 [N], where each action token stands in `input_ids`; those of items of equal
        tokens stand in one place.
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
    shares_prompts: bool = False
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
    values: dict[str, Any] = {n: a for n, a in arrays.items() if not n.startswith(ATTACHED)}
    values["num_rollouts"], values["whole"] = int(values["num_rollouts"]), bool(values["whole"])
    values["shares_prompts"] = bool(values.get("shares_prompts"))
    attached = {n.removeprefix(ATTACHED): a for n, a in arrays.items() if n not in values}
    return MicroBatch(**values, attachments=attached)


def plan_to_bytes(micro_batches: Sequence[MicroBatch]) -> bytes:
    """The arrays of the micro-batches as one safetensors file, named NUMBER/NAME."""
    numbered = [(k, arrays_of(micro_batch)) for k, micro_batch in enumerate(micro_batches)]
    return save({f"{k}/{name}": a for k, arrays in numbered for name, a in arrays.items()})


def plan_from_bytes(data: bytes) -> tuple[MicroBatch, ...]:
    """The micro-batches that `plan_to_bytes` wrote; nothing in the bytes is executed."""
    arrays: dict[int, dict[str, Array]] = {}
    for key, array in load(data).items():
        # An attachment's name may hold a slash itself, so only the first one counts.
        k, _, name = key.partition("/")
        arrays.setdefault(int(k), {})[name] = array
    return tuple(micro_batch_from(arrays[k]) for k in sorted(arrays))


def plan_update(
    items: Sequence[SAWItem],
    *,
    token_budget: int,
    world_size: int = 1,
    aggregation: Aggregation = token_mean,
    packing: bool = True,
    share_prompts: bool = False,
    router_replay: bool = False,
    attention: int = ATTENTION_TOKENS,
) -> tuple[tuple[MicroBatch, ...], ...]:
    """The micro-batches of one update, per rank; every rank gets equally many.

    aggregation: gives the scale of each token. packing: True if items may share rows.
    share_prompts: True if items of equal prompts may share its tokens in a row.
    router_replay: the micro-batches hold the experts of their tokens.
    attention: `attention_tokens` of the model.
    No micro-batch holds more than `token_budget` tokens, padding included. Ranks that would get
    fewer take a micro-batch without action tokens, so that none waits for another in a collective.
    Items without action tokens are left out. The result is a function of the arguments alone.
    Raises EmptyBatch where no item is left, and OverlongRow for an item that exceeds the budget by
    itself; UntrainableRollout for items without experts that are to be replayed.
    """
    learned = [i for i, item in enumerate(items) if item.action_mask.any()]
    if not learned:
        raise EmptyBatch(f"of {len(items)} rows, none has a token that was sampled")
    lengths = [len(item.input_ids) for item in items]
    longest = max(lengths[i] for i in learned)
    if longest > token_budget:
        raise OverlongRow(
            f"a row has {longest} tokens, more than the budget of {token_budget} per "
            "micro-batch; raise micro_token_budget or sample shorter episodes"
        )
    if router_replay:
        check_experts([items[i] for i in learned])
    elif any(item.experts is not None for item in items):
        items = [replace(item, experts=None) for item in items]
    streams = _token_streams(items, aggregation)
    forms = list(_by_streams(learned, streams))
    layout = partial(
        _chunks_of,
        items,
        token_budget=token_budget,
        world_size=world_size,
        packing=packing,
        share_prompts=share_prompts,
        attention=attention,
    )
    distinct = {items[i].input_ids.tobytes(): lengths[i] for i in learned}
    chunks = _least_torn(
        lambda parts: [chunk for form in forms for chunk in layout(form, parts)],
        items,
        # About as many as micro-batches, and one for each rank.
        least=max(world_size, -(-sum(distinct.values()) // token_budget)),
    )
    of_rollout = np.bincount(np.concatenate([stream["rollout"] for stream in streams]))
    made = [_collate(chunk, items, streams, of_rollout) for chunk in chunks]
    # Chunks come widest first and cost nearly the same, so dealing them out balances the ranks.
    ranks = [made[rank::world_size] for rank in range(world_size)]
    return tuple(
        tuple(micro_batches + [_without_tokens(made[0])] * (len(ranks[0]) - len(micro_batches)))
        for micro_batches in ranks
    )


def _chunks_of(
    items: Sequence[SAWItem],
    members: Sequence[int],
    parts: int,
    *,
    token_budget: int,
    world_size: int,
    packing: bool,
    share_prompts: bool,
    attention: int,
) -> list[Chunk]:
    """The members in chunks, as of `plan_update`.

    parts: number of blocks of rollouts of several rows, which share tokens within theirs alone.
    """
    block = blocks_of_rollouts(items, parts)
    rows = equal_rows(items, members, block)
    partition = [Family((row,)) for row in rows]
    if share_prompts:
        partition = families(items, rows, block, token_budget=token_budget, attention=attention)
    lengths = [len(item.input_ids) for item in items]
    chunks = chunks_of_rows(
        [family.width(lengths) for family in partition],
        linked(partition, sequence_ids(items)),
        token_budget=token_budget,
        world_size=world_size,
        packing=packing,
        attention=attention,
    )
    return [[[partition[k] for k in row] for row in chunk] for chunk in chunks]


def _least_torn(
    layout: Callable[[int], list[Chunk]], items: Sequence[SAWItem], *, least: int
) -> list[Chunk]:
    """The chunks of as few blocks as tear no rollout apart that could be whole.

    Rollouts that share tokens have to be in one chunk to be whole, and what is linked in this way
    may exceed the budget, where each of them does not.
    layout: chunks by the number of blocks. least: blocks to begin with.
    """
    rollout = sequence_ids(items)

    def torn(chunks: Sequence[Chunk]) -> set[int]:
        """Rollouts with rows in several chunks."""
        of_chunk = [
            {rollout[i] for row in chunk for family in row for i in family.items}
            for chunk in chunks
        ]
        times = Counter(number for numbers in of_chunk for number in numbers)
        return {number for number, count in times.items() if count > 1}

    most, parts = len(set(rollout)), least
    chunks = layout(parts)
    if not torn(chunks):
        return chunks
    apart = layout(most)
    unavoidable = torn(apart)
    while torn(chunks) - unavoidable and parts < most:
        parts *= 2
        chunks = layout(parts) if parts < most else apart
    return chunks


def _token_streams(items: Sequence[SAWItem], aggregation: Aggregation) -> list[dict[str, Array]]:
    """Arrays [n] of the n action tokens of each item, by their names in `arrays_of`."""
    streams = []
    parts = zip(items, aggregation(items), sequence_ids(items), strict=True)
    is_masked = any(item.sampling_mask is not None for item in items)
    for i, (item, scale, rollout) in enumerate(parts):
        at = np.flatnonzero(item.action_mask)
        versions = None if item.versions is None else item.versions.astype(np.int64)
        optional = {"behavior_logprobs": item.behavior_logprobs, "versions": versions}
        optional |= {ATTACHED + name: array for name, array in item.attachments.items()}
        further = masks_of(item) if is_masked else {}
        if item.teacher is not None:
            further |= teacher_of(item.teacher, len(at))
        streams.append(
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
    return streams


def check_experts(items: Sequence[SAWItem]) -> None:
    """Raise UntrainableRollout unless all items have experts, of one form."""
    arrays = [item.experts for item in items if item.experts is not None]
    if len(arrays) < len(items):
        raise UntrainableRollout(
            "router_replay is on and some rows do not say through which experts they were sampled: "
            "serve the model with `ludic serve --routed-experts`, or sample by a LocalChatClient("
            "..., routed_experts=True)"
        )
    if len(forms := {experts.shape[1:] for experts in arrays}) > 1:
        raise UntrainableRollout(
            f"rows of one update have experts of the shapes {sorted(forms)} per token: were they "
            "sampled from different models?"
        )


def grid_of_experts(
    items: Sequence[SAWItem], corners: Sequence[tuple[int, int]], shape: tuple[int, ...]
) -> NDArray[np.int16]:
    """Experts of the tokens of a grid, [B, T, layers, k], -1 for padding."""
    arrays = [item.experts for item in items if item.experts is not None]
    grid = np.full((*shape, *arrays[0].shape[1:]), UNKNOWN, np.int16)
    for experts, (row, column) in zip(arrays, corners, strict=True):
        grid[row, column : column + len(experts)] = experts
    return grid


def masks_of(item: SAWItem) -> dict[str, Array]:
    """`mask_sizes` and `mask_ids` of the tokens of an item."""
    drawn = item.input_ids[item.action_mask]
    if item.sampling_mask is None:
        # Not left out, as other streams that some items lack: a token of a masked item would be
        # taken for one that was drawn from the whole vocabulary.
        return {"mask_sizes": np.zeros(len(drawn), np.int64), "mask_ids": np.zeros(0, np.int64)}
    sizes, ids = unpacked_masks(item.sampling_mask, drawn)
    return {"mask_sizes": sizes, "mask_ids": ids}


def teacher_of(teacher: TopTokens, tokens: int) -> dict[str, Array]:
    """`teacher_ids` and `teacher_logprobs` of an item with so many sampled tokens.

    Raises UntrainableRollout for other shapes.
    """
    ids, logprobs = teacher.ids, teacher.logprobs
    if ids.ndim != 2 or len(ids) != tokens or logprobs.shape != (tokens, ids.shape[1] + 1):
        raise UntrainableRollout(
            f"a teacher gave ids {list(ids.shape)} and log-probs {list(logprobs.shape)} for "
            f"{tokens} sampled tokens; they are [{tokens}, k] and [{tokens}, k + 1]"
        )
    return {"teacher_ids": ids, "teacher_logprobs": logprobs}


def _by_streams(
    indices: Sequence[int], streams: Sequence[Mapping[str, Array]]
) -> Iterable[list[int]]:
    """The items in sets that have the same streams, for micro-batches of their own.

    One item without log-probs would hide those of the others, in metrics and guards too.
    """
    sets: dict[tuple[tuple[str, tuple[int, ...]], ...], list[int]] = {}
    for i in indices:
        # Shapes too: a teacher may have given other numbers of tokens to other rows.
        forms = tuple(sorted((name, array.shape[1:]) for name, array in streams[i].items()))
        sets.setdefault(forms, []).append(i)
    return sets.values()


def _collate(
    rows: Sequence[Sequence[Family]],
    items: Sequence[SAWItem],
    streams: Sequence[Mapping[str, Array]],
    of_rollout: NDArray[np.int64],
) -> MicroBatch:
    """The micro-batch of these rows; `of_rollout` counts tokens per rollout of the update."""
    members = [i for row in rows for family in row for i in family.items]
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
    if sum(len(family.members) for row in rows for family in row) > len(rows):
        arrays["position_ids"] = position_ids
        arrays["shares_prompts"] = np.array(any(family.shared for row in rows for family in row))
    if items[members[0]].experts is not None:
        arrays["experts"] = grid_of_experts([items[i] for i in members], corners, input_ids.shape)
    return micro_batch_from(arrays)


def _grid(
    rows: Sequence[Sequence[Family]], items: Sequence[SAWItem]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[tuple[int, int]]]:
    """Ids and positions [B, T], and where each item begins, or would begin: (row, column)."""
    lengths = [len(item.input_ids) for item in items]
    shape = len(rows), max(sum(family.width(lengths) for family in row) for row in rows)
    input_ids, position_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    corners = []
    for r, row in enumerate(rows):
        column = 0
        for family in row:
            prompt = items[family.items[0]].input_ids[: family.shared]
            # Members begin with the prompt's last token, whose logits predict their first one.
            copied = max(family.shared - 1, 0)
            rests = [
                (copied, items[i].input_ids, 1 + len(further)) for i, *further in family.members
            ]
            for start, ids, readers in [(0, prompt, 0), *rests]:
                end = column + len(ids) - start
                input_ids[r, column:end] = ids[start:]
                position_ids[r, column:end] = np.arange(start, len(ids))
                corners += [(r, column - start)] * readers
                column = end
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


def check_forms(items: Sequence[SAWItem], vocabulary: int) -> None:
    """Raise UntrainableRollout for rows that a model of so many tokens would misread, or not read.

    The logits that predict a token stand one position before it: for a first token there are none,
    and what stands at -1 is of another token. A mask of numbers would be taken for positions.
    """
    for number, item in enumerate(items):
        ids, mask = item.input_ids, item.action_mask
        where = f"row {number} of {len(items)}, of group {item.group!r},"
        streams = {"action_mask": mask, "weight": item.weight, "versions": item.versions}
        streams |= {"behavior_logprobs": item.behavior_logprobs, "steps": item.steps}
        for name, stream in (streams | dict(item.attachments)).items():
            if stream is not None and stream.shape != (len(ids),):
                raise UntrainableRollout(
                    f"{where} has {name} of shape {list(stream.shape)} for {len(ids)} tokens"
                )
        if mask.dtype != np.bool_:
            raise UntrainableRollout(
                f"{where} has an action_mask of {mask.dtype}; make it bool, as by mask.astype(bool)"
            )
        if mask[:1].any():
            raise UntrainableRollout(
                f"{where} has True at position 0 of its action_mask: nothing predicts a first "
                "token; set it to False"
            )
        if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
            raise UntrainableRollout(
                f"{where} has tokens {ids.min()} to {ids.max()}, and the model's vocabulary has "
                f"{vocabulary}: were they made with another tokenizer?"
            )


def check_finite(item: SAWItem) -> None:
    """Raise UntrainableRollout for a number of a sampled token that is not finite."""
    streams = {"weight": item.weight, "behavior_logprobs": item.behavior_logprobs}
    for name, stream in (streams | dict(item.attachments)).items():
        if stream is None or np.isfinite(stream[item.action_mask]).all():
            continue
        (position, *_) = np.flatnonzero(item.action_mask & ~np.isfinite(stream))
        raise UntrainableRollout(
            f"{name} of token {position} is {stream[position]}, in a row of group {item.group!r}, "
            f"rollout {item.rollout!r}, agent {item.agent!r}: a gradient of it would be of no use; "
            "find what made this number, such as a reward or a sampler"
        )
    if item.teacher is not None and not (item.teacher.logprobs <= MOST_LOGPROB).all():
        raise UntrainableRollout(
            f"a teacher gave the log-prob {item.teacher.logprobs.max()}, in a row of group "
            f"{item.group!r}; log-probs are at most 0"
        )
    if not 0 < item.temperature < math.inf:
        raise UntrainableRollout(
            f"temperature={item.temperature} of a row of group {item.group!r}: log-probs are of "
            "logits divided by it, so it is above 0 and finite"
        )
