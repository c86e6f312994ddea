"""Parts of a transformers model: what is inside a peft wrapper, and the transformer blocks."""

from __future__ import annotations

from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from ludic_gym.errors import ConfigError


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a peft wrapper, its adapters in place; or the model itself.

    Its decoder and output head can be called apart, which a peft wrapper does not offer.
    """
    inner: PreTrainedModel = model.get_base_model() if isinstance(model, PeftModel) else model
    return inner


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
