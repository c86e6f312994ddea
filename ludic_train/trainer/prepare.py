"""Preparation of a batch before its updates: streams attached, rows chosen, parts cut."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save
from torch import nn

from ludic_train.algorithms.aggregation import at_sampled, by_sequence
from ludic_train.algorithms.losses import bounded, k3
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.distributed.ranks import (
    all_gather,
    call_on_rank_0,
    number_from_rank_0,
    rank,
    scatter,
    world_size,
)
from ludic_train.errors import EmptyBatch
from ludic_train.metrics import Metrics, Stat, Total, merge
from ludic_train.models.modules import unwrapped, vocabulary_of
from ludic_train.sources.base import EMPTY_BATCHES_ALLOWED
from ludic_train.trainer.config import Execution, TrainerConfig
from ludic_train.trainer.microbatches import (
    MicroBatch,
    check_finite,
    check_forms,
    plan_from_bytes,
    plan_to_bytes,
    plan_update,
)
from ludic_train.trainer.packing import attention_tokens
from ludic_train.trainer.reference import Reference, reference_model
from ludic_train.trainer.step import forward, replayed
from ludic_train.types import BOOTSTRAP, PROXIMAL, REFERENCE, VALUES, SAWBatch, SAWItem, TopTokens

Streams = Mapping[str, NDArray[Any]]
# Names of the arrays of `TopTokens` among the streams, which no attachment has.
TOP_IDS, TOP_LOGPROBS = "teacher/ids", "teacher/logprobs"
# The micro-batches of one rank.
Plan = tuple[MicroBatch, ...]


def attach_streams(
    items: Sequence[SAWItem],
    model: nn.Module,
    reference: Reference | None,
    algo: RLAlgorithm,
    cfg: TrainerConfig,
    *,
    execution: Execution,
) -> list[SAWItem]:
    """The items with all streams attached that the algorithm reads; [] on other ranks than 0.

    reference: frozen model, or the params of the start of this one.
    execution: what the model's probes leave of `cfg.execution`.
    Raises ConfigError where a reference is needed and there is none, UntrainableRollout for items
    that are no rows of the model.
    """
    rows = list(items)
    vocabulary = vocabulary_of(model)
    call_on_rank_0(lambda: check_forms(items, vocabulary))
    names = algo.attach & {PROXIMAL, VALUES}
    # In a single update, the params that begin the batch are those that begin the update; but what
    # refines rows comes before its forward pass.
    if names != {PROXIMAL} or cfg.minibatches * cfg.epochs > 1 or algo.refine is not None:
        rows = scored(rows, model, names, cfg, execution=execution)
    # A source may have attached a teacher's log-probs already; rank 0 alone holds the rows.
    needs = REFERENCE in algo.attach, algo.teacher_top_k is not None
    lacking = [
        item
        for item in rows
        if (needs[0] and REFERENCE not in item.attachments) or (needs[1] and item.teacher is None)
    ]
    if number_from_rank_0(lambda: len(lacking)):
        with reference_model(model, reference, algo.name) as judge:
            names, top_k = algo.attach & {REFERENCE}, algo.teacher_top_k
            rows = scored(rows, judge, names, cfg, execution=execution, top_k=top_k)
    refine, refined = algo.refine, list[SAWItem]()
    if refine is None:
        return rows
    # An error of user code on rank 0 must reach the ranks that wait for its rows.
    call_on_rank_0(lambda: refined.extend(refine(rows)))
    return refined


def scored(
    items: list[SAWItem],
    model: nn.Module,
    names: frozenset[str],
    cfg: TrainerConfig,
    *,
    execution: Execution,
    top_k: int | None = None,
) -> list[SAWItem]:
    """The items with numbers per action token attached under each name, computed by the model.

    top_k: attach as many of the model's most likely tokens as `teacher` too.

    VALUES are those of its value head, and come with BOOTSTRAP for truncated rollouts; under any
    other name stand log-probs. All ranks take part; the items are those of rank 0, and so is the
    result, [] elsewhere.
    """
    if not names and top_k is None:
        return items
    extended = [_with_state_after(item) for item in items] if VALUES in names else items
    # No gradient is kept here, so a row that is later dropped as overlong may still be scored.
    longest = max((len(item.input_ids) for item in extended), default=0)
    budget = max(cfg.token_budget(longest), longest)
    plan: list[Plan] = []

    def planned() -> Sequence[Plan]:
        plan.extend(
            plan_update(
                extended,
                token_budget=budget,
                world_size=world_size() // execution.context_parallel,
                packing=execution.packing,
                share_prompts=execution.share_prompts,
                # The reference is another policy, with routers of its own.
                router_replay=cfg.router_replay and not names <= {REFERENCE},
                attention=_attention_of(model),
            )
        )
        return for_ranks(plan, execution)

    # Without dropout, as the engine that sampled.
    model.eval()
    parts = [
        _streams_of(model, micro_batch, names, cfg.device, top_k)
        for micro_batch in scatter(planned, plan_to_bytes, plan_from_bytes)
    ]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    # Ranks that share rows have the same numbers.
    by_rank = [load(data) for data in all_gather(save(arrays))[:: execution.context_parallel]]
    if rank() != 0:
        return []
    # Tokens come rank by rank and chunk by chunk; a stable sort restores the order of the items.
    order = np.argsort(np.concatenate([m.item for ours in plan for m in ours]), kind="stable")
    ends = np.cumsum([np.count_nonzero(item.action_mask) for item in extended])[:-1]
    streams = {
        name: np.split(np.concatenate([part[name] for part in by_rank])[order], ends)
        for name in arrays
    }
    if top_k is not None:
        tops = zip(streams.pop(TOP_IDS), streams.pop(TOP_LOGPROBS), strict=True)
        items = [
            replace(item, teacher=TopTokens(ids=ids, logprobs=logprobs))
            for item, (ids, logprobs) in zip(items, tops, strict=True)
        ]
    return [
        _with_streams(item, {n: at_sampled(whole, pieces[i]) for n, pieces in streams.items()})
        for i, (item, whole) in enumerate(zip(items, extended, strict=True))
    ]


@torch.no_grad()
def _streams_of(
    model: nn.Module,
    micro_batch: MicroBatch,
    names: frozenset[str],
    device: str,
    top_k: int | None,
) -> Streams:
    """The arrays of a micro-batch by name, [N, ...]; VALUES are missing without a value head.

    No gradient is kept. Arrays are float32, and int32 for ids, on the CPU.
    """
    with replayed(model, micro_batch):
        out = forward(model, micro_batch, device, top_k=top_k, entropy=False)
    tensors = dict.fromkeys(names, out.logprobs) | ({VALUES: out.values} if VALUES in names else {})
    tensors[TOP_LOGPROBS] = out.top_logprobs if top_k is not None else None
    arrays = {name: t.float().cpu().numpy() for name, t in tensors.items() if t is not None}
    ids = {} if out.top_ids is None else {TOP_IDS: out.top_ids.int().cpu().numpy()}
    return arrays | ids


def minibatches(
    items: Sequence[SAWItem], cfg: TrainerConfig, algo: RLAlgorithm, version: int
) -> Iterator[list[SAWItem]]:
    """Rows of each update: `cfg.epochs` passes, each cut into `cfg.minibatches` at random.

    version: of the params before the first of these updates.
    Rows of one rollout stay in one update; there are fewer updates where there are fewer rollouts.
    Rows that not every update could learn from are in the first one, beside others.
    """
    if cfg.minibatches == cfg.epochs == 1:
        yield list(items)
        return
    # Alone in a part, they would leave nothing to learn from, which ends a run.
    usable, _ = usable_rows(items, cfg, algo, version + cfg.updates_per_batch - 1)
    learned = [item for item in usable if item.action_mask.any()] or list(items)
    learned_ids = set(map(id, learned))
    further = [item for item in items if id(item) not in learned_ids]
    rollouts = by_sequence(learned)
    # Seeded by the version, so that a resumed run cuts the batch as the interrupted one did.
    rng = np.random.default_rng((cfg.seed, version))
    for _ in range(cfg.epochs):
        order = rng.permutation(len(rollouts))
        # Of rollouts and not rows: losses, credit and shares are of whole rollouts.
        for part in np.array_split(order, min(cfg.minibatches, len(rollouts)) or 1):
            yield [learned[i] for number in part for i in rollouts[number]] + further
            further = []


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
        # A mask of the position's own token alone.
        sampling_mask=None if item.sampling_mask is None else item.sampling_mask + b"\0",
        versions=None,
        teacher=None,
        attachments={},
    )


def _with_streams(item: SAWItem, streams: Streams) -> SAWItem:
    """The item with streams attached that belong to it, or to its extension by one position."""
    length = len(item.input_ids)
    new = {name: stream[:length] for name, stream in streams.items()}
    if item.truncated and VALUES in streams:
        # At the last sampled token, since streams hold numbers of sampled tokens only.
        new[BOOTSTRAP] = np.zeros(length, np.float32)
        new[BOOTSTRAP][np.flatnonzero(item.action_mask)[-1:]] = streams[VALUES][-1]
    return replace(item, attachments={**item.attachments, **new})


def plan_rows(
    items: Sequence[SAWItem],
    model: nn.Module,
    cfg: TrainerConfig,
    algo: RLAlgorithm,
    *,
    version: int,
    execution: Execution,
) -> tuple[tuple[Plan, ...], Metrics]:
    """The micro-batches of each rank, and metrics of all of them.

    version: of the params that are updated. execution: see `attach_streams`.
    Rollouts with a row of more than `cfg.max_seq_len` tokens, or older than `algo.max_lag` updates,
    are left out, and their rows counted. Raises EmptyBatch where no row is left, UntrainableRollout
    for numbers that are not finite.
    """
    for item in items:
        check_finite(item)
    # Once more at consumption: rows of a batch grow older with each of its updates.
    usable, left_out = usable_rows(items, cfg, algo, version)
    if not usable:
        raise _none_left(len(items), left_out, cfg, algo)
    plan = plan_update(
        usable,
        token_budget=cfg.token_budget(max(len(item.input_ids) for item in usable)),
        world_size=world_size() // execution.context_parallel,
        aggregation=algo.aggregation,
        packing=execution.packing,
        share_prompts=execution.share_prompts,
        router_replay=cfg.router_replay,
        attention=_attention_of(model),
    )
    computed = sum(m.input_ids.size for micro_batches in plan for m in micro_batches)
    tokens, rollouts = sum(len(item.input_ids) for item in usable), len(by_sequence(usable))
    return for_ranks(plan, execution), left_out | {
        "rows": Total(len(usable)),
        "rows/rollout": Stat(len(usable), rollouts),
        # Begun by a prompt that does not continue an earlier one of its rollout.
        "rows/further": Total(len(usable) - rollouts),
        "tokens/rollout": Stat(tokens, rollouts),
        "rows/distinct": Total(len({item.input_ids.tobytes() for item in usable})),
        "tokens/trained": Total(tokens),
        "tokens/fill": Stat(tokens, computed),
    }


def _attention_of(model: nn.Module) -> int:
    """Tokens of a row from which masked attention costs more than all else in the model."""
    # Not of the config, which has other names for it in some architectures.
    return attention_tokens(unwrapped(model).get_input_embeddings().weight.shape[-1])


def for_ranks(plan: Sequence[Plan], execution: Execution) -> tuple[Plan, ...]:
    """A plan for each rank, where neighbours that share rows have the same."""
    return tuple(rank_plan for rank_plan in plan for _ in range(execution.context_parallel))


def usable_rows(
    items: Sequence[SAWItem], cfg: TrainerConfig, algo: RLAlgorithm, version: int
) -> tuple[list[SAWItem], Metrics]:
    """Rows of the rollouts that an update of `version` may learn from; counts of the others.

    A rollout, or a pair of `preference_rows`, with one row that is too long or too old is left out
    as a whole: ratios, margins and shares of a part of it would be other ones.
    """
    indices: list[int] = []
    overlong = stale = 0
    for members in by_sequence(items):
        rows = [items[i] for i in members]
        if any(len(row.input_ids) > cfg.max_seq_len for row in rows):
            overlong += len(rows)
        elif algo.max_lag is not None and any(
            row.versions is not None
            and row.action_mask.any()
            # Updates since the oldest of its tokens was sampled.
            and version - int(row.versions[row.action_mask].min()) > algo.max_lag
            for row in rows
        ):
            stale += len(rows)
        else:
            indices += members
    if overlong:
        _warn_of_overlong(cfg.max_seq_len)
    left_out: Metrics = {"rows/overlong": Total(overlong), "rows/stale": Total(stale)}
    return [items[i] for i in sorted(indices)], left_out


async def first_usable(
    following: Callable[[], Awaitable[SAWBatch]],
    cfg: TrainerConfig,
    algo: RLAlgorithm,
    version: int,
) -> SAWBatch:
    """The first of the following batches with a usable row, and the metrics of those before it.

    All rows of one batch may be overlong or stale, which says nothing about the next.
    Raises EmptyBatch after many such batches.
    """
    counts: Metrics = {}
    rows = 0
    for _ in range(EMPTY_BATCHES_ALLOWED):
        batch = await following()
        usable, left_out = usable_rows(batch.items, cfg, algo, version)
        if usable:
            return replace(batch, metrics=merge([counts, batch.metrics]))
        counts = merge([counts, batch.metrics, left_out])
        rows += len(batch.items)
    raise _none_left(rows, counts, cfg, algo)


def _none_left(rows: int, left_out: Metrics, cfg: TrainerConfig, algo: RLAlgorithm) -> EmptyBatch:
    overlong, stale = (left_out[name].value for name in ("rows/overlong", "rows/stale"))
    return EmptyBatch(
        f"of {rows} rows, {overlong:.0f} exceed max_seq_len={cfg.max_seq_len} and {stale:.0f} lag "
        f"more than max_lag={algo.max_lag} updates; none is left"
    )


@cache
def _warn_of_overlong(max_seq_len: int) -> None:
    """Say once what may be so in each update, and biases what is learned."""
    logging.getLogger(__name__).warning(
        "rollouts with a row of more than max_seq_len=%d tokens are left out, here and in further "
        "updates (metric rows/overlong): raise TrainerConfig.max_seq_len, or where they are given "
        "--micro-tokens or --max-length, or sample fewer tokens",
        max_seq_len,
    )


# Names of groups in a warning.
SHOWN = 4


def sound_rows(
    items: Sequence[SAWItem],
    model: nn.Module,
    version: int,
    *,
    cfg: TrainerConfig,
    execution: Execution,
) -> list[SAWItem]:
    """The rows without those of groups beyond `cfg.guards.max_kl_at_lag_0`.

    items: of rank 0, as the result; all ranks take part in the pass over them.
    [] where more than half of the groups are beyond it: then the sampler is at fault, or the model.
    """
    judged = scored(list(items), model, frozenset({PROXIMAL}), cfg, execution=execution)
    kl_by_group, most = divergences(judged, version), cfg.guards.max_kl_at_lag_0
    far = {group for group, kl in kl_by_group.items() if most is None or not kl <= most}
    if 2 * len(far) > len(kl_by_group):
        return []
    if far:
        logging.getLogger(__name__).warning(
            "log-probs of the groups %s are not those of version %d, which they name: their rows "
            "are left out of the update; look at the actors and servers that they came from",
            sorted(far)[:SHOWN],
            version,
        )
    return [item for item in items if item.group not in far]


def divergences(items: Sequence[SAWItem], version: int) -> Mapping[str, float]:
    """KL(sampler || current) in nats per token of each group, on its tokens of the version.

    items: with log-probs under the current params as PROXIMAL. Groups without such tokens are left
    out.
    """
    sums, counts = defaultdict[str, float](float), Counter[str]()
    for item in items:
        if item.behavior_logprobs is None or item.versions is None:
            continue
        fresh = item.action_mask & (item.versions == version)
        ratio = torch.from_numpy((item.attachments[PROXIMAL] - item.behavior_logprobs)[fresh])
        sums[item.group] += float(k3(bounded(ratio.double())).sum())
        counts[item.group] += int(fresh.sum())
    return {group: sums[group] / count for group, count in counts.items() if count}
