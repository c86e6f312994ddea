"""The optimizer of a trainer, AdamW, and the params that it can train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.trainer.config import TrainerConfig


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
