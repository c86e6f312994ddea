"""One update: plan, forward, backward, clip, step. The trainer does nothing else."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.losses import token_mean
from ludic_train.algorithms.off_policy import check_sampler, mismatch_metrics
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.distributed.fsdp import sharded_modules, sync_gradients, whole, whole_params
from ludic_train.distributed.ranks import (
    add_up_gradients,
    copy_from_rank_0,
    gathered,
    rank,
    scattered,
    world_size,
)
from ludic_train.errors import NonFiniteUpdate
from ludic_train.metrics import Metrics, Stat, Total, merge
from ludic_train.models.logprobs import VALUE_HEAD
from ludic_train.publishers.base import InProcessPublisher, PolicyPublisher
from ludic_train.sources.base import BatchSource, DurableSource
from ludic_train.trainer.config import TrainerConfig as TrainerConfig
from ludic_train.trainer.forward import forward, loss_batch, may_pack, stats_from
from ludic_train.trainer.microbatches import MicroBatch
from ludic_train.trainer.prepare import minibatches, planned_rows, prepared
from ludic_train.trainer.rank_wire import (
    metrics_from_bytes,
    metrics_to_bytes,
    plan_from_bytes,
    plan_to_bytes,
)
from ludic_train.types import PROXIMAL, SAWBatch, SAWItem

# Ranks give up when a message takes ten minutes by default, and a batch may take longer.
WORD_S, NOT_YET = 60.0, -1
OnUpdate = Callable[[int, Metrics], None]


class Trainer:
    """Learns from a source's batches; `version` counts the updates made so far.

    reference: the model that an algorithm's KL term stays close to, where it has one; without it a
        LoRA model with its adapter off is the reference. Its params must never change.

    Under torch.distributed every rank makes one and calls the same methods. Only rank 0 asks its
    source and calls its publisher; the others may be given any. A model that `shard_model` spread
    stays so; of any other, each rank trains an equal copy.
    """

    def __init__(
        self,
        model: nn.Module,
        algo: RLAlgorithm,
        batch_source: BatchSource,
        publisher: PolicyPublisher | None = None,
        cfg: TrainerConfig | None = None,
        *,
        reference: nn.Module | None = None,
    ) -> None:
        self.cfg = cfg or TrainerConfig()
        _refuse_lagging_publisher(publisher, self.cfg)
        self.model = model.to(self.cfg.model_device)
        self.algo = algo
        self.batch_source = batch_source
        self.publisher = publisher
        self.reference = reference
        self.max_lag = algo.max_lag if self.cfg.max_lag is None else self.cfg.max_lag
        if reference is not None:
            reference.to(self.cfg.model_device).requires_grad_(False)
        self.version = 0
        self.published: int | None = None
        self._skipped = 0
        self._packing: bool | None = None
        self._sharded = bool(sharded_modules(model))
        self._trained = [p for p in model.parameters() if p.requires_grad]
        if world_size() > 1 and not self._sharded:
            copy_from_rank_0(self._trained)
        self.optimizer = _adamw(self._trained, self.cfg)

    async def train(self, num_updates: int, on_update: OnUpdate | None = None) -> None:
        """Make `num_updates` more updates, rounded up to whole batches.

        on_update: called after each update with the version it made and its metrics; it may
            raise to stop.
        """
        target = self.version + num_updates
        if self.published is None:
            await self.publish()
        carried: Metrics = {}
        while self.version < target:
            started = time.perf_counter()
            batch, updates = await self._next_batch()
            seconds = Total(time.perf_counter() - started)
            carried = merge([carried, batch.metrics, {"seconds/next_batch": seconds}])
            parts = minibatches(self._prepared(batch.items), self.cfg, self.version)
            for left in reversed(range(updates)):
                before = self.version
                made = merge([carried, self.update(next(parts, []))])
                if not left:
                    await self._note_trained()
                if self.version == before:
                    carried = _left_over(made)
                    continue
                carried = {}
                if self.version % self.cfg.sync_every_steps == 0:
                    await self.publish()
                if on_update:
                    on_update(self.version, made)

    async def publish(self) -> None:
        """Hand the params, named by `version`, to the publisher."""
        params = (p for p in whole_params(self.model) if VALUE_HEAD not in p[0])
        if self.publisher is not None and rank() == 0:
            await self.publisher.publish(params, self.version)
        if self._sharded:
            # Every rank has to take part in putting params together, whoever reads them.
            for _ in params:
                pass
        self.published = self.version

    def update(self, items: Sequence[SAWItem]) -> Metrics:
        """One optimizer step on `items`; the gradient does not depend on how they are cut up.

        A gradient that is not finite leaves params and `version` alone and is counted, as
        "updates/skipped". Raises EmptyBatch where no row is left to learn from, NonFiniteUpdate
        after too many skipped ones, SamplerMismatch where the sampler has other params than it
        says. Under torch.distributed, the items are those of rank 0.
        """
        started = time.perf_counter()
        known: list[Metrics] = []
        packing = self._may_pack()
        micro_batches = scattered(
            lambda: self._plan(items, packing, known), plan_to_bytes, plan_from_bytes
        )
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        last = len(micro_batches) - 1
        parts = [self._accumulate(m, is_last=i == last) for i, m in enumerate(micro_batches)]
        metrics = _over_ranks(merge([*known, *parts]))
        check_sampler(metrics, self.cfg.guards.max_kl_at_lag_0, self.version)
        metrics |= self._step()
        seconds = time.perf_counter() - started
        tokens = metrics["tokens/trained"].value
        return metrics | {
            "seconds/update": Total(seconds),
            "tokens/trained_per_second": Stat(tokens, seconds),
        }

    def state_dict(self) -> dict[str, Any]:
        """What JSON must hold, besides params and optimizer, to go on."""
        source = self.batch_source.state_dict() if rank() == 0 else {}
        return {"version": self.version, "source": source}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.version = int(state["version"])
        if rank() == 0:
            self.batch_source.load_state_dict(state["source"])

    async def _next_batch(self) -> tuple[SAWBatch, int]:
        """The batch, empty on other ranks than 0, and the updates that are to be made from it."""
        if rank() != 0:
            while (updates := self._updates_from(None)) == NOT_YET:
                pass
            return SAWBatch(items=()), updates
        coming = asyncio.ensure_future(self._fetched())
        try:
            while not (await asyncio.wait({coming}, timeout=_word_s()))[0]:
                self._updates_from(coming)
            updates = self._updates_from(coming)
            return coming.result(), updates
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _fetched(self) -> SAWBatch:
        await self._note_trained()
        return await self.batch_source.next_batch()

    def _updates_from(self, coming: asyncio.Future[SAWBatch] | None) -> int:
        """What rank 0, which has the batch that is coming, tells all; NOT_YET before it came."""

        def updates() -> list[int]:
            assert coming is not None
            if not coming.done():
                return [NOT_YET] * world_size()
            # Raised in here, what failed reaches the ranks that wait for rank 0.
            parts = min(self.cfg.minibatches, len(coming.result().items))
            return [self.cfg.epochs * parts] * world_size()

        return scattered(updates, lambda n: str(n).encode(), int)

    async def _note_trained(self) -> None:
        if rank() == 0 and isinstance(self.batch_source, DurableSource):
            await self.batch_source.trained(self.version)

    def _prepared(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        packing = self._may_pack()
        return prepared(items, self.model, self.reference, self.algo, self.cfg, packing=packing)

    def _plan(
        self, items: Sequence[SAWItem], packing: bool, known: list[Metrics]
    ) -> tuple[tuple[MicroBatch, ...], ...]:
        """The micro-batches of each rank; what is known about all of them goes to `known`."""
        plan, metrics = planned_rows(
            items,
            self.cfg,
            self.algo.aggregation,
            version=self.version,
            max_lag=self.max_lag,
            packing=packing,
        )
        known.append(metrics)
        return plan

    def _may_pack(self) -> bool:
        """Whether items may share rows; the first time, all ranks must ask."""
        if self._packing is None:
            wanted = self.cfg.execution.packing
            self._packing = wanted and may_pack(self.model, self.cfg.model_device)
        return self._packing

    def _accumulate(self, micro_batch: MicroBatch, *, is_last: bool) -> Metrics:
        if self._sharded:
            sync_gradients(self.model, is_last or not self.cfg.execution.sync_last_only)
        out = forward(self.model, micro_batch, self.cfg.model_device)
        batch = loss_batch(micro_batch, self.version, self.cfg.model_device)
        if PROXIMAL in self.algo.attach and PROXIMAL not in batch.attachments:
            batch = batch.with_attachment(PROXIMAL, out.logprobs.detach())
        loss, pairs = self.algo.loss(out, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        metrics = stats_from({**pairs, "entropy": token_mean(out.entropy)})
        return {**metrics, **mismatch_metrics(out, batch), "loss": Total(loss.item())}

    def _step(self) -> Metrics:
        lr = self.cfg.learning_rate(self.version)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        if world_size() > 1 and not self._sharded:
            add_up_gradients(self._trained)
        clipped = nn.utils.clip_grad_norm_(self._trained, self.cfg.max_grad_norm)
        norm = whole(clipped).item()
        if math.isfinite(norm):
            self.optimizer.step()
            self.version += 1
            self._skipped = 0
        else:
            self._skip(norm)
        return {
            "grad_norm": Total(norm),
            "lr": Total(lr),
            "updates/skipped": Total(float(self._skipped > 0)),
        }

    def _skip(self, norm: float) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._skipped += 1
        if self._skipped > self.cfg.guards.max_skipped:
            raise NonFiniteUpdate(
                f"the gradient norm of update {self.version + 1} is {norm}, for the "
                f"{self._skipped}. time in a row; the params are unchanged. Lower "
                f"lr={self.cfg.lr} or look for rewards that are not finite"
            )


def _adamw(params: Sequence[nn.Parameter], cfg: TrainerConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        params,
        lr=cfg.lr,
        betas=cfg.adamw.betas,
        eps=cfg.adamw.eps,
        weight_decay=cfg.adamw.weight_decay,
        fused=True,
    )


def _refuse_lagging_publisher(publisher: PolicyPublisher | None, cfg: TrainerConfig) -> None:
    if isinstance(publisher, InProcessPublisher) and cfg.sync_every_steps != 1:
        raise ConfigError(
            f"sync_every_steps={cfg.sync_every_steps}, but every update changes the "
            "params that an in-process sampler reads; set it to 1"
        )


def _left_over(made: Metrics) -> Metrics:
    """What a skipped update leaves to be reported with the next one."""
    return {"updates/skipped": made["updates/skipped"]}


def _over_ranks(metrics: Metrics) -> Metrics:
    """The metrics of all ranks as one."""
    if world_size() == 1:
        return metrics
    return merge(map(metrics_from_bytes, gathered(metrics_to_bytes(metrics))))


def _word_s() -> float | None:
    """Seconds between two words to ranks that wait for a batch; None where there are no others."""
    return WORD_S if world_size() > 1 else None
