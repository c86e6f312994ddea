"""The trainer: batches in, updates made, params published."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, is_dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.credit import Stateful
from ludic_train.algorithms.off_policy import check_sampler
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.distributed.fsdp import sharded_modules, whole_params
from ludic_train.distributed.ranks import (
    all_gather,
    copy_from_rank_0,
    feed_rank_0,
    number_from_rank_0,
    rank,
    run_on_rank_0,
    scatter,
    world_size,
)
from ludic_train.errors import CheckpointError, NonFiniteUpdate, SamplerMismatch
from ludic_train.metrics import Metrics, Stat, Total, merge, metrics_from_bytes, metrics_to_bytes
from ludic_train.models.attention import Attention, AttentionRecorder, set_attention, share_rows
from ludic_train.models.checkpoint_names import check_conversion
from ludic_train.models.modules import VALUE_HEAD, freeze_unreached
from ludic_train.sources.base import BatchSource, DurableSource, NoBatches, Pace
from ludic_train.sources.publisher import InProcessPublisher, PolicyPublisher
from ludic_train.trainer.config import Execution, TrainerConfig
from ludic_train.trainer.microbatches import plan_from_bytes, plan_to_bytes
from ludic_train.trainer.prepare import (
    Plan,
    attach_streams,
    first_usable,
    minibatches,
    plan_rows,
    sound_rows,
)
from ludic_train.trainer.probes import check_logprobs, check_sent, may_share_prompts, padding_reason
from ludic_train.trainer.reference import start_of
from ludic_train.trainer.step import (
    accumulate_gradient,
    apply_gradient,
    check_precision,
    check_trainable,
    disable_dropout,
    make_optimizer,
    non_finite_param,
    peak_memory,
)
from ludic_train.types import REFERENCE, SAWBatch, SAWItem

OnUpdate = Callable[[int, Metrics], None]


class Trainer:
    """Learns from a source's batches; `version` counts the updates made so far.

    reference: the model that an algorithm's KL term stays close to, where it has one; its params
        must never change. Without it, that is a LoRA model as it is given here, with the adapter
        that it has by then.

    Under torch.distributed every rank makes one and calls the same methods. Only rank 0 uses its
    source and its publisher; the others may be given any. Rank 0 may work alone between two
    calls for as long as it likes. A model that `shard_model` spread stays so; of any other, each
    rank trains an equal copy.
    Raises ConfigError where the settings make rows older than the algorithm's `max_lag`, and for
    trained params of 16 bits.
    model: trained in place, all params that require a gradient; moved to `cfg.device`. To compute
        in bfloat16 over float32 params, give it to `shard_model` first, on one device too.
    batch_source: None where all batches are given to `update`.
    publisher: None publishes nowhere. cfg: None takes the defaults.
    `attention` holds the attention kernels of the first update, once it is made; `updates_left` is
    the number of updates that the batch of the last one still has; `padding` is the reason, known
    from the first update on, for which each row holds one item, None where items share rows.
    """

    def __init__(
        self,
        model: nn.Module,
        algo: RLAlgorithm,
        batch_source: BatchSource | None,
        publisher: PolicyPublisher | None = None,
        cfg: TrainerConfig | None = None,
        *,
        reference: nn.Module | None = None,
    ) -> None:
        self.cfg = cfg or TrainerConfig()
        _check_lag(self.cfg, algo, publisher)
        if frozen := freeze_unreached(model):
            logging.getLogger(__name__).warning(
                "%d params that no log-prob depends on are frozen, such as %s",
                len(frozen),
                frozen[0],
            )
        check_trainable(model)
        self._sharded = bool(sharded_modules(model))
        # Shards are where they have to be, which with offloading is not the device.
        self.model = model if self._sharded else model.to(self.cfg.device)
        self.algo = algo
        self.batch_source = NoBatches() if batch_source is None else batch_source
        self.publisher = publisher
        self.reference = reference
        if reference is not None and not sharded_modules(reference):
            reference.to(self.cfg.device)
        if reference is not None:
            reference.requires_grad_(False)
        self.version = 0
        self.published: int | None = None
        self.attention: set[Attention] = set()
        self.padding: str | None = None
        self.updates_left = 0
        self._began = self._checked = False
        self._skipped = 0
        check_precision(model)
        if (name := self.cfg.execution.attention) is not None:
            for each in filter(None, (model, reference)):
                set_attention(each, name)
        if (ranks := self.cfg.execution.context_parallel) > 1:
            for each in filter(None, (model, reference)):
                share_rows(each, ranks)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        if world_size() > 1 and not self._sharded:
            # Only gradients are exchanged from here on, so copies must begin equal.
            copy_from_rank_0(self._trained)
        self._start = start_of(model) if reference is None and REFERENCE in algo.attach else None
        self.optimizer = make_optimizer(self._trained, self.cfg)

    async def train(self, num_updates: int, on_update: OnUpdate | None = None) -> None:
        """Make `num_updates` more updates, rounded up to whole batches, and publish the last one.

        on_update: called after each update with the version it made and its metrics; it may
            raise to stop.
        Raises as `update` does, and PublishError where a publication fails.
        """
        target = self.version + num_updates
        # Samplers may hold other params than these, and would stamp them with this version.
        if self.published is None:
            await self.publish()
        # Metrics that no callback has had yet: of a batch before its first update, of skipped ones.
        carried: Metrics = {}
        while self.version < target:
            started = time.perf_counter()
            batch = await run_on_rank_0(self._next_batch) or SAWBatch(items=())
            seconds = Total(time.perf_counter() - started)
            carried = merge([carried, batch.metrics, {"seconds/next_batch": seconds}])
            for made in self._updates(batch.items):
                skipped = made["updates/skipped"].value > 0
                # Of a skipped update the count alone: its loss may be no number.
                carried = merge(
                    [carried, {"updates/skipped": made["updates/skipped"]} if skipped else made]
                )
                # Before the publication, so that one that fails leaves no batch unnoted.
                if not self.updates_left:
                    await run_on_rank_0(self._note_trained)
                if skipped:
                    continue
                made, carried = carried, {}
                if self.version % self.cfg.publish_every == 0:
                    started = time.perf_counter()
                    await self.publish()
                    made["seconds/publish"] = Total(time.perf_counter() - started)
                if on_update:
                    on_update(self.version, made)
        if self.published != self.version:
            await self.publish()

    async def publish(self) -> None:
        """Hand the params, named by `version`, to the publisher.

        All ranks must call it. Raises PublishError where an engine does not take the params,
        NonFiniteUpdate for params that are not finite, of which nothing is published.
        """
        # An engine in rank 0's process has these very params, published or not. Its publisher
        # decides for all ranks, because the check is a collective.
        leaves = number_from_rank_0(
            lambda: not isinstance(self.publisher, InProcessPublisher | None)
        )
        if leaves and (name := non_finite_param(self.model)):
            raise NonFiniteUpdate(
                f"the params {name} of version {self.version} are not finite, and were not "
                "published; resume from an earlier checkpoint with a lower lr"
            )
        named = whole_params(self.model) if self._sharded else self.model.named_parameters()
        # Samplers have no value head.
        params = ((name, p.detach()) for name, p in named if VALUE_HEAD not in name)
        if self._sharded:
            # Every rank takes part in putting params together, at the publisher's pace.
            await feed_rank_0(params, self._handed_over)
        else:
            await run_on_rank_0(partial(self._handed_over, params))
        self.published = self.version

    def update(self, items: Sequence[SAWItem]) -> list[Metrics]:
        """Make the updates that `train` would make from a batch of these rows; metrics of each.

        The streams that the algorithm reads are attached first, and credit is refined; then come
        `cfg.epochs` times `cfg.minibatches` optimizer steps. The gradient of a step does not depend
        on how its rows are cut into micro-batches and ranks. A gradient that is not finite leaves
        params and `version` alone and is counted, as "updates/skipped".
        Groups that were sampled by other params than they name are left out and counted, as
        "rows/mismatched"; more than half of all raise SamplerMismatch.
        Raises EmptyBatch where no row is left to learn from, NonFiniteUpdate after too many skipped
        ones, UnsupportedModel for a model whose log-probs cannot be computed, UntrainableRollout
        for numbers that are not finite. Under torch.distributed, the items are those of rank 0.
        """
        return list(self._updates(items))

    def state_dict(self) -> dict[str, Any]:
        """State besides params and optimizer, as JSON can hold it.

        The state of the source is that of rank 0; {} on other ranks.
        """
        source = self.batch_source.state_dict() if rank() == 0 else {}
        state: dict[str, Any] = {"version": self.version, "source": source}
        state |= {name: part.state_dict() for name, part in stateful_parts(self.algo).items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken.

        state: of `state_dict`, for the same kind of source. Raises CheckpointError for that of
            an algorithm that keeps no such statistics.
        """
        self.version = int(state["version"])
        if rank() == 0:
            self.batch_source.load_state_dict(state["source"])
        for name, part in stateful_parts(self.algo).items():
            if name not in state:
                raise CheckpointError(
                    f"{self.algo.name} keeps statistics of its {name}, and the checkpoint has "
                    "none: resume with the algorithm of the run before"
                )
            part.load_state_dict(state[name])

    async def _next_batch(self) -> SAWBatch:
        """The source's next batch; rank 0 alone calls it."""
        source = self.batch_source
        if isinstance(source, DurableSource) and not self._began:
            pace = Pace(
                version=self.version,
                updates_per_batch=self.cfg.updates_per_batch,
                oldest_lag=self.cfg.oldest_lag,
                max_lag=self.algo.max_lag,
            )
            await source.begin(pace)
            self._began = True

        async def following() -> SAWBatch:
            await self._note_trained()
            return await source.next_batch(self.algo)

        return await first_usable(following, self.cfg, self.algo, self.version)

    async def _note_trained(self) -> None:
        """Note at a durable source that its batches are in the params."""
        source = self.batch_source
        if isinstance(source, DurableSource):
            await source.trained(self.version)

    async def _handed_over(self, params: Iterable[tuple[str, torch.Tensor]]) -> None:
        if self.publisher is not None:
            await self.publisher.publish(params, self.version)

    def _updates(self, items: Sequence[SAWItem]) -> Iterator[Metrics]:
        """Metrics of each update of a batch as it is made."""
        if not self._checked:
            disable_dropout(self.model)
            check_logprobs(self.model, self.cfg.device)
            check_conversion(self.model)
            if not self._sharded and not isinstance(self.publisher, InProcessPublisher | None):
                check_sent(self.model)
            self._checked = True
        reference = self._start if self.reference is None else self.reference
        rows = attach_streams(
            items, self.model, reference, self.algo, self.cfg, execution=self._execution
        )
        parts = list(minibatches(rows, self.cfg, self.algo, self.version))
        # Only rank 0 holds rows, and all ranks must make as many updates.
        count = number_from_rank_0(lambda: len(parts))
        for number in range(count):
            made = self._guarded(parts[number] if rank() == 0 else [])
            self.updates_left = count - number - 1
            yield made

    def _guarded(self, items: Sequence[SAWItem]) -> Metrics:
        """As `_update`, without groups of a sampler at fault where most groups are sound."""
        try:
            return self._update(items)
        except SamplerMismatch:
            sound = sound_rows(
                items, self.model, self.version, cfg=self.cfg, execution=self._execution
            )
            if not number_from_rank_0(lambda: len(sound)):
                raise
        return self._update(sound) | {"rows/mismatched": Total(float(len(items) - len(sound)))}

    def _update(self, items: Sequence[SAWItem]) -> Metrics:
        """One optimizer step from these rows, which rank 0 alone holds; its metrics."""
        started = time.perf_counter()
        of_plan: list[Metrics] = []

        def planned() -> tuple[Plan, ...]:
            # Metrics of the whole plan stay on rank 0, so that no row is counted twice.
            plan, metrics = plan_rows(
                *(items, self.model, self.cfg, self.algo),
                version=self.version,
                execution=self._execution,
            )
            of_plan.append(metrics)
            return plan

        micro_batches = scatter(planned, plan_to_bytes, plan_from_bytes)
        # Each time, since scoring and sampling may change the mode too.
        disable_dropout(self.model)
        self.optimizer.zero_grad(set_to_none=True)
        # Of one update, whose micro-batches are as those of the others.
        record = nullcontext() if self.attention else AttentionRecorder(self.attention, self.model)
        with record:
            of_passes = accumulate_gradient(
                self.model,
                micro_batches,
                algo=self.algo,
                version=self.version,
                cfg=self.cfg,
            )
        metrics = merge([*of_plan, of_passes, peak_memory(self.cfg.device)])
        if world_size() > 1:
            metrics = merge(map(metrics_from_bytes, all_gather(metrics_to_bytes(metrics))))
        # Before the step: params that learned from a stranger's samples would be worth nothing.
        check_sampler(metrics, self.cfg.guards.max_kl_at_lag_0, self.version)
        # Computed from the version, so that a resumed run needs no state of a scheduler.
        lr = self.cfg.learning_rate(self.version)
        norm = apply_gradient(
            self.optimizer, lr, max_norm=self.cfg.max_grad_norm, sharded=self._sharded
        )
        self._count_step(norm)
        seconds = time.perf_counter() - started
        return metrics | {
            "grad_norm": Total(norm),
            "lr": Total(lr),
            "updates/skipped": Total(float(not math.isfinite(norm))),
            "seconds/update": Total(seconds),
            "tokens/trained_per_second": Stat(metrics["tokens/trained"].value, seconds),
        }

    def _count_step(self, norm: float) -> None:
        """Count an update, or one that was skipped. Raises NonFiniteUpdate after too many."""
        # Only updates in a row count: a good one proves that the params are sound.
        if math.isfinite(norm):
            self.version += 1
            self._skipped = 0
            return
        self._skipped += 1
        # One such batch may be a fluke of bfloat16; several in a row will not stop by themselves.
        if self._skipped > self.cfg.guards.max_skipped:
            raise NonFiniteUpdate(
                f"the gradient norm of update {self.version + 1} is {norm}, for the "
                f"{self._skipped}. time in a row; the params are unchanged. Lower "
                f"lr={self.cfg.lr} or look for rewards that are not finite"
            )

    @cached_property
    def _execution(self) -> Execution:
        """The settings that the models allow; all ranks find out together, by forward passes."""
        asked, device = self.cfg.execution, self.cfg.device
        models = [self.model] if self.reference is None else [self.model, self.reference]
        if asked.context_parallel > 1:
            self.padding = "ranks share each row"
        elif not asked.packing:
            self.padding = "packing is off"
        else:
            reasons = [padding_reason(model, device) for model in models]
            self.padding = next((reason for reason in reasons if reason), None)
        packing = self.padding is None
        share = packing and asked.share_prompts
        share = share and all(may_share_prompts(model, device) for model in models)
        return replace(asked, packing=packing, share_prompts=share)


def _check_lag(cfg: TrainerConfig, algo: RLAlgorithm, publisher: PolicyPublisher | None) -> None:
    if isinstance(publisher, InProcessPublisher) and cfg.publish_every != 1:
        raise ConfigError(
            f"publish_every={cfg.publish_every}, but every update changes the params that an "
            "in-process engine reads; set it to 1"
        )
    if algo.max_lag is not None and cfg.oldest_lag > algo.max_lag:
        raise ConfigError(
            f"epochs={cfg.epochs}, minibatches={cfg.minibatches} and "
            f"publish_every={cfg.publish_every} make rows up to {cfg.oldest_lag} updates old, but "
            f"the algorithm's max_lag={algo.max_lag}; raise it"
        )


def stateful_parts(algo: RLAlgorithm) -> dict[str, Stateful]:
    """The parts of the algorithm's credit that keep statistics, as {"credit.advantage": part}."""
    return _stateful_fields("credit", algo.credit) | _stateful_fields("refine", algo.refine)


def _stateful_fields(name: str, part: object) -> dict[str, Stateful]:
    if isinstance(part, Stateful):
        return {name: part}
    parts: dict[str, Stateful] = {}
    # Credit that is given further credit, such as TokenWhitened, has it in a field.
    for inner in fields(part) if is_dataclass(part) else ():
        parts |= _stateful_fields(f"{name}.{inner.name}", getattr(part, inner.name))
    return parts
