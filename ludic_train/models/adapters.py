"""Kinds of peft's layers, told without importing peft: it takes a third of a second.

A layer is of them only if peft has been imported already, by what made it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

from torch import nn

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer, ParamWrapper
    from peft.tuners.tuners_utils import BaseTunerLayer


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
