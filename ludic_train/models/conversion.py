"""Params between the names and shapes of a model in memory and those of hub checkpoints.

transformers fuses experts when it loads a model, and splits them when it saves it:

    model.layers.0.mlp.experts.gate_up_proj              in memory, [experts, 2 * inner, hidden]
    model.layers.0.mlp.experts.0.gate_proj.weight, ...   in files, [inner, hidden] each

Engines that read checkpoints, such as vLLM, know the names of files alone. All conversions are
those of transformers, by which the model was loaded, or else of its architecture.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import torch
from torch import Tensor, nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    PrefixChange,
    WeightConverter,
    WeightRenaming,
    WeightTransform,
    dot_natural_key,
    rename_source_key,
    revert_weight_conversion,
)

from ludic_train.errors import UnsupportedModel
from ludic_train.models.logprobs import unwrapped

NamedTensors = Iterable[tuple[str, Tensor]]
# Up to the number of the transformer block that a param belongs to.
_BLOCK = re.compile(r"^.*?\.\d+\.")


def hub_params(model: nn.Module, params: NamedTensors) -> Iterator[tuple[str, Tensor]]:
    """The params under the names and in the shapes of a hub checkpoint.

    params: of `model` without adapters, in its order; read a transformer block at a time, which is
        what is held in memory.
    """
    for _, block in groupby(params, key=lambda param: block_of(param[0])):
        yield from revert_weight_conversion(unwrapped(model), dict(block)).items()


def model_params(model: nn.Module, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a checkpoint under the names and in the shapes that `model` has.

    stored: all parts of each param that is fused. Unknown names stay as they are.
    """
    transforms = _transforms(model)
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    found: dict[str, Tensor] = {}
    fused: dict[str, WeightConverter] = {}
    # Experts are stacked in the order in which they come, so 10 must not come before 2.
    for name in sorted(stored, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters)
        if pattern is None:
            found[target] = stored[name]
            continue
        own = fused.setdefault(target, copy.deepcopy(by_pattern[pattern]))
        own.add_tensor(target, name, pattern, stored[name])
    for target, converter in fused.items():
        made = converter.convert(target, model=unwrapped(model), config=unwrapped(model).config)
        found |= {n: t[0] if isinstance(t, list) else t for n, t in made.items()}
    return found


def check_conversion(model: nn.Module) -> None:
    """Raise UnsupportedModel, with a name, for params that no checkpoint could give back.

    Converts names and shapes alone, to a checkpoint and back.
    """
    inner = unwrapped(model)
    own = {
        name: torch.empty(param.shape, dtype=param.dtype, device="meta")
        for name, param in inner.named_parameters()
        # Adapters are no part of a checkpoint; their base layers are, under plain names.
        if "lora_" not in name
    }
    own = {name.replace(".base_layer", ""): param for name, param in own.items()}
    back = model_params(model, dict(hub_params(model, own.items())))
    expected, found = ({n: t.shape for n, t in each.items()} for each in (own, back))
    if wrong := sorted(n for n in expected if found.get(n) != expected[n]):
        raise UnsupportedModel(
            f"{wrong[0]} of {type(inner).__name__} (model_type {inner.config.model_type!r}) is "
            "renamed in a checkpoint and cannot be read back from there: saved params would be "
            "lost. Load the model from a checkpoint in the format of its hub page, or take "
            "another release of transformers"
        )


def block_of(name: str) -> str:
    """Name of the transformer block that a param belongs to; "" for one of none."""
    match = _BLOCK.match(name)
    return match[0] if match else ""


def _transforms(model: nn.Module) -> list[WeightTransform]:
    """Those from checkpoints to `model`, fresh; by the same rule as transformers' opposite way."""
    inner = unwrapped(model)
    # transformers keeps those of a loaded model here, and has no function that returns them.
    used: list[WeightTransform] | None = vars(inner).get("_weight_conversions")
    if used is None:
        known = get_model_conversion_mapping(inner, add_legacy=False)
        used = [each for each in known if not isinstance(each, PrefixChange)]
    return copy.deepcopy(used)
