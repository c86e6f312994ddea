"""Params between the names and shapes of a model in memory and those of hub checkpoints.

transformers fuses experts when it loads a model, and splits them when it saves it:

    model.layers.0.mlp.experts.gate_up_proj              in memory, [experts, 2 * inner, hidden]
    model.layers.0.mlp.experts.0.gate_proj.weight, ...   in files, [inner, hidden] each

Engines that read checkpoints, such as vLLM, know the names of files alone. All conversions are
those of transformers, by which the model was loaded, or else of its architecture; adapters are
merged on the way.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from itertools import chain, groupby

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

from ludic_gym.errors import ConfigError
from ludic_train.errors import UnsupportedModel
from ludic_train.models.adapters import Params, base_buffers, base_params, merged_params
from ludic_train.models.modules import unwrapped

# Up to the number of the transformer block that a param belongs to.
_BLOCK = re.compile(r"^.*?\.\d+\.")


def hub_params(model: nn.Module, params: Params) -> Iterator[tuple[str, Tensor]]:
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
    inner = unwrapped(model)
    # transformers keeps those of a loaded model here, and has no function that returns them.
    used: list[WeightTransform] | None = vars(inner).get("_weight_conversions")
    if used is None:
        # By the same rule as transformers' opposite way.
        conversions = get_model_conversion_mapping(inner, add_legacy=False)
        used = [each for each in conversions if not isinstance(each, PrefixChange)]
    transforms = copy.deepcopy(used)
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    by_pattern = {pattern: each for each in converters for pattern in each.source_patterns}
    converted: dict[str, Tensor] = {}
    fused: dict[str, WeightConverter] = {}
    # Experts are stacked in the order in which they come, so 10 must not come before 2.
    for name in sorted(stored, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters)
        if pattern is None:
            converted[target] = stored[name]
            continue
        fused_converter = fused.setdefault(target, copy.deepcopy(by_pattern[pattern]))
        fused_converter.add_tensor(target, name, pattern, stored[name])
    for target, converter in fused.items():
        made = converter.convert(target, model=inner, config=inner.config)
        converted |= {n: t[0] if isinstance(t, list) else t for n, t in made.items()}
    return converted


def check_conversion(model: nn.Module) -> None:
    """Raise UnsupportedModel, with a name, for params that no checkpoint could give back.

    Converts names and shapes alone, to a checkpoint and back.
    """
    inner = unwrapped(model)
    params = {n: torch.empty_like(p, device="meta") for n, p in base_params(model)}
    back = model_params(model, dict(hub_params(model, params.items())))
    expected, actual = ({n: t.shape for n, t in each.items()} for each in (params, back))
    if wrong := sorted(n for n in expected if actual.get(n) != expected[n]):
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


def checkpoint_params(params: Params, model: nn.Module | None) -> Iterator[tuple[str, Tensor]]:
    """All that a hub checkpoint holds, under its names and in its shapes, adapters merged.

    Persistent buffers follow the params: servers that know the checkpoint wait for all of it.
    params: of `model`, whole, in its order. model: None for one that has the names of its
        checkpoint in memory, and no adapters.
    A transformer block is held in memory at a time.
    Raises ConfigError as `merged_params`, and for fused experts without a model.
    """
    merged = merged_params(params, model)
    if model is not None:
        yield from hub_params(model, chain(merged, base_buffers(model)))
        return
    for name, tensor in merged:
        if tensor.ndim == 3 and ".experts." in name:
            raise ConfigError(
                f"{name} {list(tensor.shape)} is all experts of a layer, which checkpoints name "
                "one by one: give the publisher its model, FilesPublisher(urls, model=model)"
            )
        yield name, tensor
