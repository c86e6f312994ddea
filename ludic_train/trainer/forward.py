"""Forward pass over a micro-batch, the input of a loss, and the memory that passes take."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludic_train.distributed.fsdp import local_part
from ludic_train.distributed.ranks import all_gather
from ludic_train.errors import OutOfMemory, UntrainableRollout
from ludic_train.metrics import Metrics, Peak
from ludic_train.models.head import SamplingMasks, action_logprobs
from ludic_train.models.modules import unwrapped
from ludic_train.models.routing import replayed_experts
from ludic_train.trainer.microbatches import MicroBatch
from ludic_train.trainer.packing import mask_of_positions
from ludic_train.types import LossBatch, TokenLogprobs


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
    return action_logprobs(
        model,
        tensor(micro_batch.input_ids, device),
        tensor(micro_batch.row, device),
        tensor(micro_batch.column, device),
        tensor(micro_batch.temperature, device),
        position_ids,
        masks,
        _teacher_ids(model, micro_batch, device) if top_k is None else top_k,
        attention_mask,
        entropy=entropy,
    )


def _teacher_ids(model: nn.Module, micro_batch: MicroBatch, device: str) -> Tensor | None:
    """The teacher's tokens, int64 [N, k]. Raises UntrainableRollout for unknown ones."""
    ids = micro_batch.teacher_ids
    if ids is None:
        return None
    vocabulary = unwrapped(model).config.get_text_config().vocab_size
    # Checked here, because a GPU fails at such an index without naming it.
    if ids.size and not 0 <= ids.min() <= ids.max() < vocabulary:
        raise UntrainableRollout(
            f"a teacher gave tokens {ids.min()} to {ids.max()}, and the model's vocabulary has "
            f"{vocabulary}: a teacher needs the student's tokenizer, and a smaller k leaves out "
            "the ids that pad its vocabulary"
        )
    return tensor(ids, device).long()


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


def without_dropout(model: nn.Module) -> None:
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
            "--micro-tokens (TrainerConfig.micro_token_budget), --lora-rank 16, --adamw-bits 8 or "
            "--offload; `ludic plan` says what each needs"
        ) from error


def not_finite(model: nn.Module) -> str:
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
