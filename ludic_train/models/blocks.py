"""The transformer blocks of a model."""

from __future__ import annotations

from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.models.logprobs import unwrapped


def blocks(model: nn.Module) -> list[nn.Module]:
    """The transformer blocks. Raises ConfigError for a model without a list of them."""
    decoder = unwrapped(model).get_decoder()
    lists = [child for child in decoder.children() if isinstance(child, nn.ModuleList)]
    if len(lists) != 1:
        raise ConfigError(
            f"{type(decoder).__name__} has {len(lists)} lists of modules where one list of "
            "transformer blocks is expected; this architecture cannot be sharded by block"
        )
    return list(lists[0])
