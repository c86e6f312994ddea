"""Preparation of a batch before its updates: streams attached, rows chosen, parts cut."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import Aggregation
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.algorithms.sequences import by_sequence
from ludic_train.distributed.ranks import gathered, on_rank_0, rank, scattered, world_size
from ludic_train.errors import EmptyBatch
from ludic_train.metrics import Metrics, Stat, Total
from ludic_train.trainer.config import TrainerConfig
from ludic_train.trainer.forward import forward
from ludic_train.trainer.microbatches import MicroBatch, plan_update, update_layout
from ludic_train.trainer.rank_wire import plan_from_bytes, plan_to_bytes
from ludic_train.types import BOOTSTRAP, PROXIMAL, REFERENCE, VALUES, SAWItem

Streams = Mapping[str, NDArray[np.float32]]
# The arrays [N] of a micro-batch, by the name they are to be attached under.
Score = Callable[[MicroBatch], Streams]
Plan = tuple[MicroBatch, ...]


def prepared(
    items: Sequence[SAWItem],
    model: nn.Module,
    reference: nn.Module | None,
    algo: RLAlgorithm,
    cfg: TrainerConfig,
    *,
    packing: bool,
) -> list[SAWItem]:
    """The items with all streams attached that the algorithm reads; [] on other ranks than 0.

    Raises ConfigError where a reference is needed and there is none.
    """
    kept = list(items)
    names = algo.attach & {PROXIMAL, VALUES}
    # In a single update, the params that begin the batch are those that begin the update.
    if names != {PROXIMAL} or cfg.minibatches * cfg.epochs > 1:
        kept = scored(kept, model, names, cfg, packing=packing)
    if REFERENCE in algo.attach and not _judged(kept):
        with reference_model(model, reference, algo.name) as judge:
            kept = scored(kept, judge, frozenset({REFERENCE}), cfg, packing=packing)
    refine, refined = algo.refine, list[SAWItem]()
    if refine is None:
        return kept
    on_rank_0(lambda: refined.extend(refine(kept)))
    return refined


def scored(
    items: list[SAWItem],
    model: nn.Module,
    names: frozenset[str],
    cfg: TrainerConfig,
    *,
    packing: bool,
) -> list[SAWItem]:
    """The items with numbers per action token attached under each name, computed by the model.

    VALUES are those of its value head, and come with BOOTSTRAP for truncated rollouts; under any
    other name stand log-probs.
    """
    if not names:
        return items
    scored_items = [_with_state_after(item) for item in items] if VALUES in names else items
    budget = max(cfg.micro_token_budget, *(len(i.input_ids) for i in scored_items), 0)

    @torch.no_grad()
    def score(micro_batch: MicroBatch) -> Streams:
        out = forward(model, micro_batch, cfg.device)
        streams = {VALUES: out.values} if VALUES in names else {}
        streams |= dict.fromkeys(names - {VALUES}, out.logprobs)
        return {n: s.float().cpu().numpy() for n, s in streams.items() if s is not None}

    model.eval()
    found = attached(scored_items, score, token_budget=budget, packing=packing)
    if VALUES not in names:
        return found
    return [_with_streams_of(item, known) for item, known in zip(items, found, strict=True)]


@contextmanager
def reference_model(
    model: nn.Module, reference: nn.Module | None, wanted_by: str
) -> Iterator[nn.Module]:
    """The frozen reference, or the model with its LoRA adapter off while the context lasts.

    Raises ConfigError where there is neither.
    """
    from peft import PeftModel

    if reference is not None:
        yield reference
    elif isinstance(model, PeftModel):
        with model.disable_adapter():
            yield model
    else:
        raise ConfigError(
            f"{wanted_by} compares with a reference model and there is none; give "
            "Trainer(reference=copy.deepcopy(model)), train by LoRA, or have the source attach "
            "its log-probs"
        )


def minibatches(
    items: Sequence[SAWItem], cfg: TrainerConfig, version: int
) -> Iterator[list[SAWItem]]:
    """Rows of each update: `cfg.epochs` passes, each cut into `cfg.minibatches` at random.

    Rows of one rollout stay in one update; there are fewer updates where there are fewer rollouts.
    """
    if cfg.minibatches == cfg.epochs == 1:
        yield list(items)
        return
    rollouts = by_sequence(items)
    rng = np.random.default_rng((cfg.seed, version))
    for _ in range(cfg.epochs):
        order = rng.permutation(len(rollouts))
        for part in np.array_split(order, min(cfg.minibatches, len(rollouts)) or 1):
            yield [items[i] for number in part for i in rollouts[number]]


def _with_state_after(item: SAWItem) -> SAWItem:
    """A truncated item with one more position, whose value is that of the state it ended in.

    Values are computed from the tokens before a position, so the token that stands there is free.
    """
    if not item.truncated:
        return item
    return replace(
        item,
        input_ids=np.append(item.input_ids, np.int32(0)),
        action_mask=np.append(item.action_mask, True),
        weight=np.append(item.weight, np.float32(0)),
        behavior_logprobs=None,
        versions=None,
        attachments={},
    )


def _with_streams_of(item: SAWItem, extended: SAWItem) -> SAWItem:
    """The item with the streams attached to it or to its extension by one position."""
    length = len(item.input_ids)
    streams = {name: stream[:length] for name, stream in extended.attachments.items()}
    if item.truncated:
        after = np.zeros(length, np.float32)
        after[np.flatnonzero(item.action_mask)[-1:]] = extended.attachments[VALUES][-1]
        streams[BOOTSTRAP] = after
    return replace(item, attachments={**item.attachments, **streams})


def _judged(items: Sequence[SAWItem]) -> bool:
    """True if the source attached log-probs of a reference or teacher; rank 0 knows."""
    judged = all(REFERENCE in item.attachments for item in items)
    return scattered(lambda: [judged] * world_size(), lambda yes: b"y" * yes, bool)


def attached(
    items: Sequence[SAWItem], score: Score, *, token_budget: int, packing: bool
) -> list[SAWItem]:
    """The items with the streams of `score` attached, 0 off the mask.

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


def planned_rows(
    items: Sequence[SAWItem],
    cfg: TrainerConfig,
    aggregation: Aggregation,
    *,
    version: int,
    max_lag: int | None,
    packing: bool,
) -> tuple[tuple[Plan, ...], Metrics]:
    """The micro-batches of each rank, and metrics of all of them.

    Raises EmptyBatch where no row is left.
    """
    usable, dropped = usable_rows(items, cfg.max_seq_len, version=version, max_lag=max_lag)
    plan = plan_update(
        usable,
        token_budget=cfg.micro_token_budget,
        world_size=world_size(),
        aggregation=aggregation,
        packing=packing,
    )
    tokens = sum(len(item.input_ids) for item in usable)
    computed = sum(m.input_ids.size for own in plan for m in own)
    return plan, {
        **dropped,
        "rows": Total(len(usable)),
        "tokens/trained": Total(tokens),
        "tokens/fill": Stat(tokens, computed),
    }


def usable_rows(
    items: Sequence[SAWItem], max_seq_len: int, *, version: int, max_lag: int | None
) -> tuple[list[SAWItem], Metrics]:
    """The rows of at most `max_seq_len` tokens and `max_lag` updates; counts of all others.

    Raises EmptyBatch where no row is left.
    """
    short = [item for item in items if len(item.input_ids) <= max_seq_len]
    fresh = [item for item in short if max_lag is None or _lag(item, version) <= max_lag]
    if not fresh:
        raise EmptyBatch(
            f"of {len(items)} rows, {len(items) - len(short)} exceed max_seq_len={max_seq_len} and "
            f"{len(short) - len(fresh)} lag more than max_lag={max_lag} updates; none is left"
        )
    return fresh, {
        "rows/overlong": Total(len(items) - len(short)),
        "rows/stale": Total(len(short) - len(fresh)),
    }


def _lag(item: SAWItem, version: int) -> int:
    """Updates since the oldest of its tokens was sampled; 0 where that is unknown."""
    if item.versions is None or not item.action_mask.any():
        return 0
    return version - int(item.versions[item.action_mask].min())
