"""Parts of a trainer that are made once, and refusals of settings that cannot work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.credit import Stateful
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import CheckpointError
from ludic_train.sources.publisher import InProcessPublisher, PolicyPublisher
from ludic_train.trainer.adamw8 import AdamW8bit
from ludic_train.trainer.config import TrainerConfig
from ludic_train.trainer.shards import ShardAdamW


def optimizer_of(params: Sequence[nn.Parameter], cfg: TrainerConfig) -> torch.optim.Optimizer:
    """AdamW with moments of the configured bits."""
    settings = asdict(cfg.adamw)
    if settings.pop("bits") == 8:
        return AdamW8bit(params, lr=cfg.lr, **settings)
    of_shards = any(isinstance(param, DTensor) for param in params)
    kind = ShardAdamW if of_shards else torch.optim.AdamW
    return kind(params, lr=cfg.lr, fused=True, **settings)


def refuse_low_precision(model: nn.Module) -> None:
    """Raise ConfigError for trained params that are too coarse for an optimizer's steps."""
    for name, param in model.named_parameters():
        # A step of AdamW is about lr, and 8 bits of mantissa round 1 + 1e-3 back to 1.
        if param.requires_grad and param.dtype in (torch.bfloat16, torch.float16):
            raise ConfigError(
                f"the trained param {name} is {param.dtype}, in which AdamW's small steps are "
                "rounded away: load the model in float32, and compute in bfloat16 with "
                "shard_model(model, param_dtype=torch.bfloat16) or `ludic train --dtype bf16`"
            )


def refuse_impossible_lag(
    cfg: TrainerConfig, algo: RLAlgorithm, publisher: PolicyPublisher | None
) -> None:
    """Raise ConfigError for settings under which rows are older than allowed."""
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
    return _remembering("credit", algo.credit) | _remembering("refine", algo.refine)


def load_statistics(algo: RLAlgorithm, state: Mapping[str, Any]) -> None:
    """Load the statistics of a trainer's state. Raises CheckpointError where it has none."""
    for name, part in stateful_parts(algo).items():
        if name not in state:
            raise CheckpointError(
                f"{algo.name} keeps statistics of its {name}, and the checkpoint has none: resume "
                "with the algorithm of the run before"
            )
        part.load_state_dict(state[name])


def _remembering(name: str, part: object) -> dict[str, Stateful]:
    if isinstance(part, Stateful):
        return {name: part}
    found: dict[str, Stateful] = {}
    # Credit that is given further credit, such as TokenWhitened, has it in a field.
    for inner in fields(part) if is_dataclass(part) else ():
        found |= _remembering(f"{name}.{inner.name}", getattr(part, inner.name))
    return found
