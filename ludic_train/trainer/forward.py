"""Forward pass over a micro-batch, the input of a loss, and a test of packed rows."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludic_train.models.logprobs import action_logprobs
from ludic_train.trainer.microbatches import MicroBatch
from ludic_train.types import LossBatch, TokenLogprobs


def forward(model: nn.Module, micro_batch: MicroBatch, device: str = "cpu") -> TokenLogprobs:
    """Log-probs (nats), entropies and values of the N action tokens, [N].

    device: that of the model. Values are None for a model without a value head.
    """
    positions = micro_batch.position_ids
    return action_logprobs(
        model,
        tensor(micro_batch.input_ids, device),
        tensor(micro_batch.row, device),
        tensor(micro_batch.column, device),
        tensor(micro_batch.temperature, device),
        None if positions is None else tensor(positions, device),
    )


def loss_batch(micro_batch: MicroBatch, version: int, device: str = "cpu") -> LossBatch:
    """The micro-batch as tensors for a loss.

    version: of the params being updated; lags are counted from it, and schedules follow it.
    device: that of the model.
    """
    versions, logprobs = micro_batch.versions, micro_batch.behavior_logprobs
    return LossBatch(
        weight=tensor(micro_batch.weight, device),
        scale=tensor(micro_batch.scale, device),
        behavior_logprobs=None if logprobs is None else tensor(logprobs, device),
        rollout=tensor(micro_batch.rollout, device),
        num_rollouts=micro_batch.num_rollouts,
        whole=micro_batch.whole,
        lag=None if versions is None else tensor(version - versions, device),
        version=version,
        attachments={name: tensor(a, device) for name, a in micro_batch.attachments.items()},
    )


def tensor(array: np.ndarray[Any, Any], device: str) -> Tensor:
    """The array on a device, in its dtype; on a CPU both share memory."""
    # Shares the array's memory on a CPU; nothing writes to it.
    return torch.from_numpy(array).to(device)


def may_pack(model: nn.Module, device: str = "cpu") -> bool:
    """`packs_exactly`, with a logged warning where that is False.

    The trainer then pads rows, which costs time and leaves results as they are.
    """
    exact = packs_exactly(model, device)
    if not exact:
        logging.getLogger(__name__).warning(
            "items that share a row see each other in %s; rows are padded instead",
            type(model).__name__,
        )
    return exact


@torch.no_grad()
def packs_exactly(model: nn.Module, device: str = "cpu") -> bool:
    """True if items that share a row leave each other alone, and are scored as they are alone.

    Measured on two rows of two items, because architectures and attention kernels differ in how
    they read positions that start again.
    """
    training = model.training
    # Dropout would make equal rows differ.
    model.eval()
    ids = torch.arange(1, 65, device=device).view(4, 16)
    alone = _scores(model, ids, None)
    positions = torch.arange(16, device=device).repeat(2, 2)
    packed = _scores(model, ids.view(2, 32), positions)
    other = ids.view(2, 32).clone()
    other[:, :16] += 7
    # The second half of a row must not notice that the first one changed.
    beside_others = _scores(model, other, positions)
    model.train(training)
    # Another shape may take another kernel: the same numbers, rounded differently.
    rounding = 1e-4 if next(model.parameters()).dtype == torch.float32 else 0.1
    same_as_alone = torch.allclose(packed, alone, rtol=0, atol=rounding)
    return same_as_alone and torch.allclose(packed[1::2], beside_others[1::2], rtol=0, atol=1e-6)


def _scores(model: nn.Module, ids: Tensor, positions: Tensor | None) -> Tensor:
    """Log-probs of the last 15 of each 16 tokens, [4, 15]."""
    row, column = torch.nonzero(torch.arange(ids.shape[1]).expand(ids.shape) % 16, as_tuple=True)
    row, column = row.to(ids.device), column.to(ids.device)
    temperature = torch.ones(len(row), device=ids.device)
    return action_logprobs(model, ids, row, column, temperature, positions).logprobs.view(4, 15)
