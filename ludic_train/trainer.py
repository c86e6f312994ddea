"""One update: plan, forward, backward, clip, step. The trainer does nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms import RLAlgorithm
from ludic_train.errors import EmptyBatch, NonFiniteUpdate
from ludic_train.logprobs import action_logprobs
from ludic_train.losses import LossBatch, token_mean
from ludic_train.metrics import Metrics, Stat, Total, merge, stats_from
from ludic_train.off_policy import mismatch_metrics
from ludic_train.planning import MicroBatch, plan_update
from ludic_train.publishers import InProcessPublisher, PolicyPublisher
from ludic_train.saw import SAWItem
from ludic_train.sources import BatchSource

OnUpdate = Callable[[int, Metrics], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """How updates are made.

    lr: peak learning rate; it rises linearly over `warmup_updates` and, where `decay_updates` is
        given, falls linearly until then to `final_lr_fraction` of the peak.
    max_grad_norm: gradients with a larger global L2 norm are scaled down to it.
    minibatches: optimizer updates made from one batch, each on its own random part of the rows.
    micro_token_budget: tokens of one forward pass, padding included; changes memory, not results.
    max_seq_len: rows with more tokens are dropped and counted.
    sync_every_steps: updates between two publications of the params.
    max_lag: rows sampled by params older than this many updates are dropped and counted.
    """

    model_device: str = "cpu"
    lr: float = 1e-5
    warmup_updates: int = 0
    decay_updates: int | None = None
    final_lr_fraction: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    minibatches: int = 1
    micro_token_budget: int = 16_384
    max_seq_len: int = 4_096
    sync_every_steps: int = 1
    max_lag: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        positive = {
            "lr": self.lr,
            "max_grad_norm": self.max_grad_norm,
            "minibatches": self.minibatches,
            "max_seq_len": self.max_seq_len,
            "sync_every_steps": self.sync_every_steps,
        }
        for name, value in positive.items():
            if not value > 0:
                raise ConfigError(f"{name}={value}; it must be greater than 0")
        if self.max_seq_len > self.micro_token_budget:
            raise ConfigError(
                f"max_seq_len={self.max_seq_len} exceeds "
                f"micro_token_budget={self.micro_token_budget}; a row must fit into a micro-batch"
            )
        oldest = self.minibatches - 1 + self.sync_every_steps - 1
        if self.max_lag is not None and oldest > self.max_lag:
            raise ConfigError(
                f"minibatches={self.minibatches} and sync_every_steps={self.sync_every_steps} make "
                f"rows up to {oldest} updates old, but max_lag={self.max_lag}; raise it"
            )


class Trainer:
    """Learns from a source's batches; `version` counts the updates made so far."""

    def __init__(
        self,
        model: nn.Module,
        algo: RLAlgorithm,
        batch_source: BatchSource,
        publisher: PolicyPublisher | None = None,
        cfg: TrainerConfig | None = None,
    ) -> None:
        self.cfg = cfg or TrainerConfig()
        if isinstance(publisher, InProcessPublisher) and self.cfg.sync_every_steps != 1:
            raise ConfigError(
                f"sync_every_steps={self.cfg.sync_every_steps}, but an in-process sampler reads "
                "the params that every update changes; set it to 1"
            )
        self.model = model.to(self.cfg.model_device)
        self.algo = algo
        self.batch_source = batch_source
        self.publisher = publisher
        self.version = 0
        self.published: int | None = None
        trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            trained,
            lr=self.cfg.lr,
            betas=self.cfg.betas,
            weight_decay=self.cfg.weight_decay,
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
        while self.version < target:
            started = time.perf_counter()
            batch = await self.batch_source.next_batch()
            carried: Metrics = {
                **batch.metrics,
                "seconds/next_batch": Total(time.perf_counter() - started),
            }
            for items in self._minibatches(batch.items):
                metrics = merge([carried, self.update(items)])
                carried = {}
                if self.version % self.cfg.sync_every_steps == 0:
                    await self.publish()
                if on_update:
                    on_update(self.version, metrics)

    async def publish(self) -> None:
        """Hand the params, named by `version`, to the publisher."""
        if self.publisher is not None:
            await self.publisher.publish(self.model.named_parameters(), self.version)
        self.published = self.version

    def update(self, items: Sequence[SAWItem]) -> Metrics:
        """One optimizer step on `items`; the gradient does not depend on how they are cut up.

        Raises EmptyBatch where no row is left to learn from, and NonFiniteUpdate, with the params
        as they were, where the gradient is NaN or infinite.
        """
        started = time.perf_counter()
        usable, dropped = self._usable(items)
        (micro_batches,) = plan_update(
            usable, token_budget=self.cfg.micro_token_budget, aggregation=self.algo.aggregation
        )
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        losses, parts = zip(*map(self._accumulate, micro_batches), strict=True)
        stepped = self._step()
        self.version += 1
        tokens = sum(len(item.input_ids) for item in usable)
        seconds = time.perf_counter() - started
        return {
            **merge(parts),
            **dropped,
            **stepped,
            "loss": Total(math.fsum(losses)),
            "seconds/update": Total(seconds),
            "tokens/trained": Total(tokens),
            "tokens/trained_per_second": Stat(tokens, seconds),
            "rows": Total(len(usable)),
        }

    def state_dict(self) -> dict[str, Any]:
        """What JSON must hold, besides params and optimizer, to go on."""
        return {"version": self.version, "source": self.batch_source.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.version = int(state["version"])
        self.batch_source.load_state_dict(state["source"])

    def _minibatches(self, items: Sequence[SAWItem]) -> Iterator[list[SAWItem]]:
        if self.cfg.minibatches == 1:
            yield list(items)
            return
        order = np.random.default_rng((self.cfg.seed, self.version)).permutation(len(items))
        for part in np.array_split(order, min(self.cfg.minibatches, len(items))):
            yield [items[i] for i in part]

    def _usable(self, items: Sequence[SAWItem]) -> tuple[list[SAWItem], Metrics]:
        short = [item for item in items if len(item.input_ids) <= self.cfg.max_seq_len]
        fresh = [item for item in short if not self._stale(item)]
        if not fresh:
            raise EmptyBatch(
                f"of {len(items)} rows, {len(items) - len(short)} exceed "
                f"max_seq_len={self.cfg.max_seq_len} and {len(short) - len(fresh)} lag more than "
                f"max_lag={self.cfg.max_lag} updates; none is left"
            )
        return fresh, {
            "rows/overlong": Total(len(items) - len(short)),
            "rows/stale": Total(len(short) - len(fresh)),
        }

    def _stale(self, item: SAWItem) -> bool:
        if self.cfg.max_lag is None or item.versions is None:
            return False
        oldest = int(item.versions[item.action_mask].min())
        return self.version - oldest > self.cfg.max_lag

    def _accumulate(self, micro_batch: MicroBatch) -> tuple[float, Metrics]:
        device = self.cfg.model_device
        row, column = tensor(micro_batch.row, device), tensor(micro_batch.column, device)
        positions = micro_batch.position_ids
        out = action_logprobs(
            self.model,
            tensor(micro_batch.input_ids, device),
            row,
            column,
            tensor(micro_batch.temperature, device),
            None if positions is None else tensor(positions, device),
        )
        batch = loss_batch(micro_batch, self.version, device)
        loss, pairs = self.algo.loss(out, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        metrics = stats_from({**pairs, "entropy": token_mean(out.entropy)})
        return loss.item(), {**metrics, **mismatch_metrics(out, batch)}

    def _step(self) -> Metrics:
        lr = self.learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.max_grad_norm).item()
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise NonFiniteUpdate(
                f"the gradient norm of update {self.version + 1} is {norm}; the params are "
                f"unchanged. Lower lr={self.cfg.lr} or look for rewards that are not finite"
            )
        self.optimizer.step()
        return {"grad_norm": Total(norm), "lr": Total(lr)}

    def learning_rate(self) -> float:
        """The rate of the next update."""
        cfg, done = self.cfg, self.version
        rise = min(1.0, (done + 1) / cfg.warmup_updates) if cfg.warmup_updates else 1.0
        if cfg.decay_updates is None:
            return cfg.lr * rise
        left = max(0.0, 1 - done / cfg.decay_updates)
        return cfg.lr * rise * (cfg.final_lr_fraction + (1 - cfg.final_lr_fraction) * left)


def loss_batch(micro_batch: MicroBatch, version: int, device: str = "cpu") -> LossBatch:
    """What a loss reads of a micro-batch, as tensors; `version` is the one being updated."""
    versions, logprobs = micro_batch.versions, micro_batch.behavior_logprobs
    return LossBatch(
        weight=tensor(micro_batch.weight, device),
        scale=tensor(micro_batch.scale, device),
        behavior_logprobs=None if logprobs is None else tensor(logprobs, device),
        row=tensor(micro_batch.item, device),
        num_rows=micro_batch.num_items,
        lag=None if versions is None else tensor(version - versions, device),
        attachments={name: tensor(a, device) for name, a in micro_batch.attachments.items()},
    )


def tensor(array: np.ndarray[Any, Any], device: str) -> Tensor:
    """The array on a device."""
    return torch.from_numpy(array).to(device)
