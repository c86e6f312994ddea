"""One update of a model: forward and backward passes over micro-batches, then the step."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.losses import OnDevice, fetch_metrics, token_stat
from ludic_train.algorithms.off_policy import mismatch, without_empty_lags
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.distributed.fsdp import local_part, whole
from ludic_train.distributed.ranks import add_up_gradients, all_gather, rank, world_size
from ludic_train.errors import OutOfMemory, UntrainableRollout
from ludic_train.metrics import Metrics, Peak, Stat, Total, merge
from ludic_train.models.head import SamplingMasks, action_logprobs
from ludic_train.models.modules import unwrapped
from ludic_train.models.routing import replayed_experts
from ludic_train.trainer.config import TrainerConfig
from ludic_train.trainer.microbatches import MicroBatch
from ludic_train.trainer.packing import mask_of_positions
from ludic_train.types import PROXIMAL, LossBatch, TokenLogprobs


def accumulate_gradient(
    model: nn.Module,
    micro_batches: Sequence[MicroBatch],
    *,
    algo: RLAlgorithm,
    version: int,
    cfg: TrainerConfig,
) -> Metrics:
    """Add the gradients of an update's micro-batches to the params; metrics of this rank.

    version: of the params.
    Raises OutOfMemory with the settings that need less.
    """
    reports: list[OnDevice] = []
    largest = max((m.input_ids.size for m in micro_batches), default=0)
    with memory_explained(cfg.device, largest):
        for micro_batch in micro_batches:
            with replayed(model, micro_batch):
                reports.append(_backward(model, micro_batch, algo=algo, version=version, cfg=cfg))
    if rank() % cfg.execution.context_parallel:
        # The neighbour with which it shares rows counts them.
        reports = []
    # Here and not in each micro-batch, where the device would wait for the next one's launch.
    return without_empty_lags(merge(fetch_metrics(reports)))


def _backward(
    model: nn.Module,
    micro_batch: MicroBatch,
    *,
    algo: RLAlgorithm,
    version: int,
    cfg: TrainerConfig,
) -> OnDevice:
    """Forward and backward pass of a micro-batch; its metrics, left on the device."""
    out = forward(model, micro_batch, cfg.device, entropy=cfg.execution.entropy)
    batch = loss_batch(micro_batch, version, cfg.device)
    if PROXIMAL in algo.attach and PROXIMAL not in batch.attachments:
        # A batch of one update: its params are the proximal ones, and a pass is saved.
        batch = batch.with_attachment(PROXIMAL, out.logprobs.detach())
    loss, pairs = algo.loss(out, batch)
    # A sum whose scale holds the denominator of the whole update, so that gradients add up.
    loss.backward()  # type: ignore[no-untyped-call]
    if cfg.execution.entropy:
        pairs = {**pairs, "entropy": token_stat(out.entropy)}
    metrics: OnDevice = {name: (Stat, pair) for name, pair in pairs.items()}
    # Detached, so that nothing of the graph lives until the end of the update.
    return {**metrics, "loss": (Total, (loss.detach(),)), **mismatch(out, batch)}


def apply_gradient(
    optimizer: torch.optim.Optimizer, lr: float, *, max_norm: float, sharded: bool
) -> float:
    """Clip the gradient and update the params; its L2 norm over all ranks, before clipping.

    A gradient that is not finite is dropped, and leaves the params alone.
    """
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for group in optimizer.param_groups:
        group["lr"] = lr
    if world_size() > 1 and not sharded:
        add_up_gradients(params)
    # Once over all micro-batches and ranks: clipping parts would depend on how they were cut.
    norm = whole(nn.utils.clip_grad_norm_(params, max_norm)).item()
    if math.isfinite(norm):
        optimizer.step()
    else:
        optimizer.zero_grad(set_to_none=True)
    return norm


def forward(
    model: nn.Module,
    micro_batch: MicroBatch,
    device: str = "cpu",
    *,
    top_k: int | None = None,
    entropy: bool = True,
) -> TokenLogprobs:
    """Log-probs (nats), entropies and values of the N action tokens, [N].

    Where the micro-batch has tokens of a teacher, the log-probs of these too.
    device: that of the model. Values are None for a model without a value head.
    top_k: choose as many of the model's own most likely tokens instead, and give their log-probs.
    entropy: False where nothing reads entropies, which are then [0].
    Raises UntrainableRollout where a teacher's token is not in the model's vocabulary.
    """
    positions, sizes, ids = micro_batch.position_ids, micro_batch.mask_sizes, micro_batch.mask_ids
    masks = None
    if sizes is not None and ids is not None:
        masks = SamplingMasks(tensor(sizes, device), tensor(ids, device))
    position_ids = attention_mask = None
    if positions is not None:
        position_ids = tensor(positions, device)
        attention_mask = mask_of_positions(position_ids) if micro_batch.shares_prompts else None
    top: Tensor | int | None = top_k
    if top_k is None and (named := micro_batch.teacher_ids) is not None:
        vocabulary = unwrapped(model).config.get_text_config().vocab_size
        # Checked here, because a GPU fails at such an index without naming it.
        if named.size and not 0 <= named.min() <= named.max() < vocabulary:
            raise UntrainableRollout(
                f"a teacher gave tokens {named.min()} to {named.max()}, and the model's vocabulary "
                f"has {vocabulary}: a teacher needs the student's tokenizer, and a smaller k "
                "leaves out the ids that pad its vocabulary"
            )
        top = tensor(named, device).long()
    return action_logprobs(
        model,
        tensor(micro_batch.input_ids, device),
        tensor(micro_batch.row, device),
        tensor(micro_batch.column, device),
        tensor(micro_batch.temperature, device),
        position_ids,
        masks,
        top,
        attention_mask,
        entropy=entropy,
    )


def replayed(model: nn.Module, micro_batch: MicroBatch) -> AbstractContextManager[None]:
    """A context in which the tokens of a micro-batch go through the experts that they name.

    It covers the backward pass too, which may compute activations again.
    """
    experts = micro_batch.experts
    # The last token of a row is predicted, and never read.
    return nullcontext() if experts is None else replayed_experts(model, experts[:, :-1])


def loss_batch(micro_batch: MicroBatch, version: int, device: str = "cpu") -> LossBatch:
    """The micro-batch as tensors for a loss.

    version: of the params being updated; lags are counted from it, and schedules follow it.
    device: that of the model.
    """
    versions, logprobs = micro_batch.versions, micro_batch.behavior_logprobs
    taught = micro_batch.teacher_logprobs
    return LossBatch(
        weight=tensor(micro_batch.weight, device),
        scale=tensor(micro_batch.scale, device),
        behavior_logprobs=None if logprobs is None else tensor(logprobs, device),
        rollout=tensor(micro_batch.rollout, device),
        num_rollouts=micro_batch.num_rollouts,
        whole=micro_batch.whole,
        lag=None if versions is None else tensor(version - versions, device),
        version=version,
        teacher_logprobs=None if taught is None else tensor(taught, device),
        attachments={name: tensor(a, device) for name, a in micro_batch.attachments.items()},
    )


def tensor(array: np.ndarray[Any, Any], device: str) -> Tensor:
    """The array on a device, in its dtype; on a CPU both share memory."""
    # Shares the array's memory on a CPU; nothing writes to it.
    shared = torch.from_numpy(array)
    # From pageable memory, a copy would wait for all that the card has to do.
    return shared if device == "cpu" else shared.pin_memory().to(device, non_blocking=True)


def disable_dropout(model: nn.Module) -> None:
    """Put a model into the mode of updates: eval mode, in which activation checkpoints still work.

    With dropout, log-probs would be of another policy than the one that sampled.
    """
    model.eval()
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            # transformers makes checkpoints in train mode alone, and asks the block for its mode.
            module.training = True
            for name in [n for n, value in vars(module).items() if isinstance(value, float)]:
                if "dropout" in name:
                    setattr(module, name, 0.0)


@contextmanager
def memory_explained(device: str, tokens: int) -> Iterator[None]:
    """Raise OutOfMemory, which names what needs less, for torch's own error of a card.

    tokens: of a forward pass.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise OutOfMemory(
            f"{device} has too little memory for an update in forward passes of {tokens:,} tokens "
            f"({reason}): take --recompute first (`checkpoint_activations`), then fewer "
            "--micro-tokens (TrainerConfig.micro_token_budget), --lora-rank 16 or --offload; "
            "`ludic train --plan` says what each needs"
        ) from error


def non_finite_param(model: nn.Module) -> str:
    """Name of trained params that are not finite on some rank, "" without any."""
    parts = ((n, local_part(p)) for n, p in model.named_parameters() if p.requires_grad)
    bad = next((name for name, part in parts if not torch.isfinite(part).all()), "")
    return next((name.decode() for name in all_gather(bad.encode()) if name), "")


def peak_memory(device: str) -> Metrics:
    """Most memory that this process has held so far, on its card, or with "cpu" of the host."""
    if device == "cpu":
        # Bytes on macOS, kibibytes elsewhere.
        unit = 1 if sys.platform == "darwin" else 1024
        held = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    else:
        held = torch.cuda.max_memory_allocated(device)
    return {"memory/peak_gib": Peak(held / 2**30)}


def make_optimizer(params: Sequence[nn.Parameter], cfg: TrainerConfig) -> torch.optim.Optimizer:
    """AdamW of the configured rates."""
    return torch.optim.AdamW(params, lr=cfg.lr, fused=True, **asdict(cfg.adamw))


def check_trainable(model: nn.Module) -> None:
    """Raise ConfigError for a model without a param that requires a gradient."""
    if not any(param.requires_grad for param in model.parameters()):
        raise ConfigError(
            f"no param of this {type(model).__name__} requires a gradient, so nothing would be "
            "trained: unfreeze it, or load the adapter with is_trainable=True"
        )


def check_precision(model: nn.Module) -> None:
    """Raise ConfigError for trained params that are too coarse for an optimizer's steps."""
    for name, param in model.named_parameters():
        # A step of AdamW is about lr, and 8 bits of mantissa round 1 + 1e-3 back to 1.
        if param.requires_grad and param.dtype in (torch.bfloat16, torch.float16):
            raise ConfigError(
                f"the trained param {name} is {param.dtype}, in which AdamW's small steps are "
                "rounded away: load the model in float32, and compute in bfloat16 with "
                "shard_model(model, param_dtype=torch.bfloat16) or `ludic train --dtype bf16`"
            )
