"""The model that a KL term compares with: a frozen one, or the one that trains as it began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.distributed.fsdp import local_part
from ludic_train.models.modules import is_adapted

# A frozen model, or the trained params of the model as they were, by name.
Reference = nn.Module | Mapping[str, Tensor]


def start_of(model: nn.Module) -> Mapping[str, Tensor] | None:
    """Copies of the params that train beside a frozen base; None where all of the model trains.

    A second copy of an adapter is small; of a whole model it is the caller's to make.
    """
    if not is_adapted(model):
        return None
    trained = {name: param for name, param in model.named_parameters() if param.requires_grad}
    return {name: local_part(param).detach().clone() for name, param in trained.items()}


@contextmanager
def reference_model(
    model: nn.Module, reference: Reference | None, wanted_by: str
) -> Iterator[nn.Module]:
    """The frozen reference, or the model with the params of its start while the context lasts.

    wanted_by: name of the algorithm, for the error.
    Raises ConfigError where there is neither.
    """
    if isinstance(reference, nn.Module):
        yield reference
    elif reference is not None:
        now = start_of(model)
        assert now is not None
        _put(model, reference)
        try:
            yield model
        finally:
            _put(model, now)
    else:
        raise ConfigError(
            f"{wanted_by} compares with a reference model and there is none; give "
            "Trainer(reference=copy.deepcopy(model)), train by LoRA, or have the source attach "
            "its log-probs"
        )


@torch.no_grad()
def _put(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, param in model.named_parameters():
        if name in values:
            local_part(param).copy_(values[name])
