"""Modules of a model: transformers' own inside the wrappers, its blocks, layers with adapters.

Kinds of peft's layers are recognized without importing peft, which takes a third of a second: a
layer is of them only if peft has been imported already, by what made it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.errors import UnsupportedModel

if TYPE_CHECKING:
    from peft import PeftModel
    from peft.tuners.lora import LoraLayer, ParamWrapper
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper
    from transformers import PreTrainedModel

# Name of a value head among the children of a model.
VALUE_HEAD = "value_head"
# In the config of a model: ids of its tokenizer. Saved with it, and sent to other ranks.
USED_VOCABULARY = "used_vocab_size"


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a peft wrapper, its adapters in place; or the model itself.

    Its decoder and output head can be called apart, which a peft wrapper does not offer.
    """
    inner: PreTrainedModel = model.get_base_model() if is_adapted(model) else model
    return inner


def decoder_of(inner: PreTrainedModel) -> nn.Module:
    """The part of a causal language model before its head, which returns hidden states.

    Raises UnsupportedModel for a model without such a part.
    """
    embeddings, head = inner.get_input_embeddings(), inner.get_output_embeddings()
    # `get_decoder` of Llama 4 and Mllama is the whole model, and that of ModernBERT a layer.
    parts: list[nn.Module] = [inner.get_decoder(), *inner.children()]
    for part in parts:
        if part not in (inner, head) and any(module is embeddings for module in part.modules()):
            return part
    raise UnsupportedModel(
        f"{type(inner).__name__} (model_type {inner.config.model_type!r}) has no part that makes "
        "hidden states of tokens, apart from its output head"
    )


def vocabulary_of(model: nn.Module) -> int:
    """Number of ids that the model's tokens have; later rows of a padded vocabulary are no tokens.

    That of the tokenizer, where `limit_vocabulary` has noted it in the config.
    """
    config = unwrapped(model).config.get_text_config()
    rows: int = config.vocab_size
    return min(getattr(config, USED_VOCABULARY, None) or rows, rows)


def limit_vocabulary(model: nn.Module, size: int) -> None:
    """Note in the model's config that ids from `size` on are no tokens.

    They are then neither sampled nor in any log-prob. Raises ConfigError for a model that has fewer
    rows than its tokenizer has ids.
    """
    config = unwrapped(model).config.get_text_config()
    if size > config.vocab_size:
        raise ConfigError(
            f"the tokenizer has {size} ids and the model {config.vocab_size}: they do not belong "
            "together, or the embeddings were to be resized after tokens were added"
        )
    setattr(config, USED_VOCABULARY, size)


def freeze_unreached(model: nn.Module) -> list[str]:
    """Freeze trained params that no log-prob of tokens depends on, such as towers of images.

    Their names. They would have no gradient in one process, and one of 0 on several ranks, by which
    an optimizer makes steps of weight decay.
    """
    inner = unwrapped(model)
    parts = decoder_of(inner), inner.get_input_embeddings(), inner.get_output_embeddings()
    reached = {param for part in parts for param in part.parameters()}
    names = []
    for name, param in model.named_parameters():
        if param.requires_grad and param not in reached and VALUE_HEAD not in name:
            param.requires_grad_(False)
            names.append(name)
    return names


def blocks(model: nn.Module) -> list[nn.Module]:
    """The transformer blocks. Raises ConfigError for a model without a list of them."""
    decoder = decoder_of(unwrapped(model))
    lists = [child for child in decoder.children() if isinstance(child, nn.ModuleList)]
    if len(lists) != 1:
        raise ConfigError(
            f"{type(decoder).__name__} has {len(lists)} lists of modules where one list of "
            "transformer blocks is expected; this architecture cannot be sharded by block"
        )
    return list(lists[0])


def persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that a saved model has and that are no params, by name.

    Models compute with them, such as the bias by which a router's load is balanced.
    """
    # Not `state_dict`, by which FSDP takes its params apart, also those that a pass is reading.
    return {
        f"{path}.{name}".removeprefix("."): buffer
        for path, module in model.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    }


def is_adapted(model: nn.Module | None) -> TypeGuard[PeftModel]:
    """True for a model with adapters."""
    if "peft" not in sys.modules:
        return False
    from peft import PeftModel

    return isinstance(model, PeftModel)


def is_adapted_layer(module: nn.Module) -> TypeGuard[BaseTunerLayer]:
    """True for a layer with an adapter of any kind."""
    if "peft" not in sys.modules:
        return False
    from peft.tuners.tuners_utils import BaseTunerLayer

    return isinstance(module, BaseTunerLayer)


def is_lora_layer(module: nn.Module) -> TypeGuard[LoraLayer]:
    """True for a layer, or the experts of a mixture, with low-rank matrices."""
    if "peft" not in sys.modules:
        return False
    from peft.tuners.lora import LoraLayer

    return isinstance(module, LoraLayer)


def is_expert_adapter(module: nn.Module) -> TypeGuard[ParamWrapper]:
    """True for the experts of a mixture, one param in memory, with low-rank matrices."""
    if "peft" not in sys.modules:
        return False
    from peft.tuners.lora import ParamWrapper

    return isinstance(module, ParamWrapper)


def is_trained_beside(module: nn.Module) -> TypeGuard[AuxiliaryTrainingWrapper]:
    """True for a module that trains beside adapters, as a whole or some of its rows."""
    if "peft" not in sys.modules:
        return False
    from peft.utils.other import AuxiliaryTrainingWrapper

    return isinstance(module, AuxiliaryTrainingWrapper)
