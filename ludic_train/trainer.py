"""One update: plan, forward, backward, clip, step. The trainer does nothing else."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms import RLAlgorithm
from ludic_train.attachments import Streams, attached
from ludic_train.config import TrainerConfig as TrainerConfig
from ludic_train.errors import EmptyBatch, NonFiniteUpdate, SamplerMismatch
from ludic_train.logprobs import VALUE_HEAD
from ludic_train.losses import PROXIMAL, REFERENCE, VALUES, token_mean
from ludic_train.metrics import Metrics, Stat, Total, merge, stats_from
from ludic_train.off_policy import mismatch_metrics
from ludic_train.passes import forward, loss_batch, packs_exactly
from ludic_train.planning import MicroBatch, plan_update
from ludic_train.publishers import InProcessPublisher, PolicyPublisher
from ludic_train.ranks import (
    add_up_gradients,
    copy_from_rank_0,
    gathered,
    rank,
    scattered,
    world_size,
)
from ludic_train.saw import SAWBatch, SAWItem
from ludic_train.sharding import sharded_modules, sync_gradients, whole, whole_params
from ludic_train.sources import BatchSource
from ludic_train.wire import metrics_from_bytes, metrics_to_bytes, plan_from_bytes, plan_to_bytes

OnUpdate = Callable[[int, Metrics], None]
Plan = tuple[MicroBatch, ...]
KL_AT_LAG_0 = "mismatch/kl_at_lag_0"


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
        if isinstance(publisher, InProcessPublisher) and self.cfg.sync_every_steps != 1:
            raise ConfigError(
                f"sync_every_steps={self.cfg.sync_every_steps}, but every update changes the "
                "params that an in-process sampler reads; set it to 1"
            )
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
        self.optimizer = torch.optim.AdamW(
            self._trained,
            lr=self.cfg.lr,
            betas=self.cfg.adamw.betas,
            eps=self.cfg.adamw.eps,
            weight_decay=self.cfg.adamw.weight_decay,
            fused=True,
        )

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
            parts = self._parts(self._prepared(batch.items))
            for _ in range(updates):
                before = self.version
                made = merge([carried, self.update(next(parts, []))])
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
        self._may_pack()
        micro_batches = scattered(lambda: self._plan(items, known), plan_to_bytes, plan_from_bytes)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        last = len(micro_batches) - 1
        parts = [self._accumulate(m, is_last=i == last) for i, m in enumerate(micro_batches)]
        metrics = _over_ranks(merge([*known, *parts]))
        self._check_sampler(metrics)
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
        batch, failed = SAWBatch(items=()), None
        if rank() == 0:
            try:
                batch = await self.batch_source.next_batch()
            except Exception as error:
                failed = error

        def updates() -> list[int]:
            # Raised in here, it reaches the ranks that wait for rank 0.
            if failed is not None:
                raise failed
            parts = min(self.cfg.minibatches, len(batch.items))
            return [self.cfg.epochs * parts] * world_size()

        return batch, scattered(updates, lambda n: str(n).encode(), int)

    def _prepared(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items of a batch with everything attached that the algorithm asks for."""
        kept = list(items)
        names = self.algo.attach & {PROXIMAL, VALUES}
        # In a single update, the params that begin the batch are those that begin the update.
        if names != {PROXIMAL} or self.cfg.minibatches * self.cfg.epochs > 1:
            kept = self._attached(kept, self.model, names)
        if REFERENCE in self.algo.attach and not self._judged(kept):
            with self._reference_model() as model:
                kept = self._attached(kept, model, frozenset({REFERENCE}))
        return self.algo.refine(kept) if self.algo.refine and rank() == 0 else kept

    def _attached(
        self, items: list[SAWItem], model: nn.Module, names: frozenset[str]
    ) -> list[SAWItem]:
        if not names:
            return items
        budget = max(self.cfg.micro_token_budget, *(len(i.input_ids) for i in items), 0)

        @torch.no_grad()
        def score(micro_batch: MicroBatch) -> Streams:
            out = forward(model, micro_batch, self.cfg.model_device)
            streams = {VALUES: out.values} if VALUES in names else {}
            streams |= dict.fromkeys(names - {VALUES}, out.logprobs)
            return {n: s.float().cpu().numpy() for n, s in streams.items() if s is not None}

        model.eval()
        return attached(items, score, token_budget=budget, packing=self._may_pack())

    def _judged(self, items: Sequence[SAWItem]) -> bool:
        """Whether the source attached log-probs of a reference or teacher; rank 0 knows."""
        judged = all(REFERENCE in item.attachments for item in items)
        return scattered(lambda: [judged] * world_size(), lambda yes: b"y" * yes, bool)

    @contextmanager
    def _reference_model(self) -> Iterator[nn.Module]:
        from peft import PeftModel

        if self.reference is not None:
            yield self.reference
        elif isinstance(self.model, PeftModel):
            with self.model.disable_adapter():
                yield self.model
        else:
            raise ConfigError(
                f"{self.algo.name} compares with a reference model and there is none; give "
                "Trainer(reference=copy.deepcopy(model)), train by LoRA, or have the source attach "
                "its log-probs"
            )

    def _parts(self, items: Sequence[SAWItem]) -> Iterator[list[SAWItem]]:
        if self.cfg.minibatches == self.cfg.epochs == 1:
            yield list(items)
            return
        rng = np.random.default_rng((self.cfg.seed, self.version))
        for _ in range(self.cfg.epochs):
            order = rng.permutation(len(items))
            for part in np.array_split(order, min(self.cfg.minibatches, len(items)) or 1):
                yield [items[i] for i in part]

    def _plan(self, items: Sequence[SAWItem], known: list[Metrics]) -> tuple[Plan, ...]:
        """The micro-batches of each rank; what is known about all of them goes to `known`."""
        usable, dropped = self._usable(items)
        plan = plan_update(
            usable,
            token_budget=self.cfg.micro_token_budget,
            world_size=world_size(),
            aggregation=self.algo.aggregation,
            packing=self._may_pack(),
        )
        tokens = sum(len(item.input_ids) for item in usable)
        computed = sum(m.input_ids.size for own in plan for m in own)
        known.append(
            {
                **dropped,
                "rows": Total(len(usable)),
                "tokens/trained": Total(tokens),
                "tokens/fill": Stat(tokens, computed),
            }
        )
        return plan

    def _usable(self, items: Sequence[SAWItem]) -> tuple[list[SAWItem], Metrics]:
        short = [item for item in items if len(item.input_ids) <= self.cfg.max_seq_len]
        fresh = [item for item in short if not self._stale(item)]
        if not fresh:
            raise EmptyBatch(
                f"of {len(items)} rows, {len(items) - len(short)} exceed "
                f"max_seq_len={self.cfg.max_seq_len} and {len(short) - len(fresh)} lag more than "
                f"max_lag={self.max_lag} updates; none is left"
            )
        return fresh, {
            "rows/overlong": Total(len(items) - len(short)),
            "rows/stale": Total(len(short) - len(fresh)),
        }

    def _stale(self, item: SAWItem) -> bool:
        if self.max_lag is None or item.versions is None or not item.action_mask.any():
            return False
        oldest = int(item.versions[item.action_mask].min())
        return self.version - oldest > self.max_lag

    def _may_pack(self) -> bool:
        """Whether items may share rows; the first time, all ranks must ask."""
        if self._packing is None:
            self._packing = self.cfg.execution.packing and packs_exactly(
                self.model, self.cfg.model_device
            )
            if self.cfg.execution.packing and not self._packing:
                logging.getLogger(__name__).warning(
                    "items that share a row see each other in %s; rows are padded instead",
                    type(self.model).__name__,
                )
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

    def _check_sampler(self, metrics: Metrics) -> None:
        most, metric = self.cfg.guards.max_kl_at_lag_0, metrics.get(KL_AT_LAG_0)
        if most is not None and metric is not None and metric.value > most:
            raise SamplerMismatch(
                f"tokens that version {self.version} is said to have sampled are "
                f"{metric.value:.3g} nats from it, more than max_kl_at_lag_0={most}; was the new "
                "version loaded, and are temperature and log-prob mode those of the sampler?"
            )

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


def _left_over(made: Metrics) -> Metrics:
    """What a skipped update leaves to be reported with the next one."""
    return {"updates/skipped": made["updates/skipped"]}


def _over_ranks(metrics: Metrics) -> Metrics:
    """The metrics of all ranks as one."""
    if world_size() == 1:
        return metrics
    return merge(map(metrics_from_bytes, gathered(metrics_to_bytes(metrics))))
