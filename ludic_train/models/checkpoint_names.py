"""Names of a trainer's params in the checkpoint that a server was started from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.models.adapters import is_expert_adapter, is_lora_layer
from ludic_train.models.conversion import block_of, hub_params
from ludic_train.models.logprobs import is_adapted
from ludic_vllm.merging import A, B

if TYPE_CHECKING:
    from peft import PeftModel

Params = Iterable[tuple[str, Tensor]]
# Modules that torch and peft put around others; no checkpoint has them.
WRAPPERS = re.compile(r"(?<=\.)(_orig_mod|_checkpoint_wrapped_module|base_layer)\.|^_orig_mod\.")
LORA = re.compile(r"\.(lora_([AB]))\.([^.]+)\.weight$")


def checkpoint_params(params: Params, model: nn.Module | None) -> Iterator[tuple[str, Tensor]]:
    """The params under the names and in the shapes of the hub checkpoint, adapters merged.

    params: of `model`, whole, in its order. model: None for one that has the names of its
        checkpoint in memory, and no adapters.
    A transformer block is held in memory at a time.
    Raises ConfigError as `merged_params`, and for fused experts without a model.
    """
    merged = merged_params(params, model)
    return _plain(merged) if model is None else hub_params(model, merged)


def merged_params(params: Params, model: nn.Module | None) -> Iterator[tuple[str, Tensor]]:
    """The params under the names that the model has without adapters, with these merged.

    W + alpha / rank * B A (Hu et al. 2021, arXiv:2106.09685) is computed in float32, in new memory;
    for the experts of a mixture, each with the A and B of its own.
    Raises ConfigError for adapters without a model, or of another kind than LoRA's matrices.
    """
    # Merging happens in a copy: in place and back, rounding would add up.
    for _, block in groupby(params, key=lambda param: block_of(param[0])):
        yield from _merged_block(dict(block), model)


def adapter_params(params: Params) -> Iterator[tuple[str, Tensor]]:
    """The LoRA matrices alone, under the names that an adapter's file has.

    Empty for params of a model without adapters.
    """
    for name, tensor in params:
        if LORA.search(name):
            yield LORA.sub(r".\1.weight", name), tensor


def adapters_alone(params: Params, model: PeftModel) -> Iterator[tuple[str, Tensor]]:
    """The matrices of all adapters, scaled, in float32, for servers that merge them themselves.

    Names are those of the adapted params, with A or B. Raises ConfigError as `merged_params`.
    """
    for name, tensor in params:
        if match := LORA.search(name):
            path = name[: match.start()]
            layer: Any = model.get_submodule(path)
            scale = layer.scaling[model.active_adapter] if match[2] == "B" else 1.0
            part = A if match[2] == "A" else B
            yield _plain_name(_adapted(path, layer)) + part, scale * tensor.detach().float()


def adapted_params(model: PeftModel) -> dict[str, tuple[str, int]]:
    """Name in the checkpoint and rank of the adapter, by name of each adapted param in memory."""
    found = {}
    for path, layer in model.named_modules():
        if is_lora_layer(layer):
            name = _adapted(path, layer)
            found[name] = (_plain_name(name), int(layer.r[model.active_adapter]))
    return found


def has_expert_adapters(model: nn.Module) -> bool:
    """True if adapters change the experts of a mixture, which are one param in memory."""
    return any(map(is_expert_adapter, model.modules()))


def _plain(params: Params) -> Iterator[tuple[str, Tensor]]:
    """The params as they are. Raises ConfigError for fused experts."""
    for name, tensor in params:
        if tensor.ndim == 3 and ".experts." in name:
            raise ConfigError(
                f"{name} {list(tensor.shape)} is all experts of a layer, which checkpoints name "
                "one by one: give the publisher its model, such as VLLMPublisher(urls, model=model)"
            )
        yield name, tensor


def _merged_block(
    block: dict[str, Tensor], model: nn.Module | None
) -> Iterator[tuple[str, Tensor]]:
    """The params of a transformer block, with the adapters of this block merged."""
    merged, held = _apart(block)
    for path, matrices in held.items():
        layer = _lora_layer(path, model)
        name = _adapted(path, layer)
        if name not in merged or len(matrices) < 2:
            raise ConfigError(f"{name} and its adapters are expected together")
        merged[name] = _merged(merged[name], matrices, layer, model.active_adapter)  # type: ignore
    for name, tensor in merged.items():
        yield _plain_name(name), tensor


def _apart(block: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
    """The params of a block without adapters, and "A" and "B" of each layer that has one.

    Raises ConfigError for adapters of another kind.
    """
    held: dict[str, dict[str, Tensor]] = {}
    rest = dict(block)
    for name in block:
        if match := LORA.search(name):
            held.setdefault(name[: match.start()], {})[match[2]] = rest.pop(name)
        elif "lora_" in name or "modules_to_save" in name:
            raise ConfigError(f"{name} is no LoRA matrix that can be merged into a checkpoint")
    return rest, held


def _lora_layer(path: str, model: nn.Module | None) -> nn.Module:
    """The layer that has an adapter. Raises ConfigError without a model that has adapters."""
    if not is_adapted(model):
        raise ConfigError(
            f"{path} has an adapter: give the publisher its model, VLLMPublisher(urls, "
            "model=model), to publish it merged, or take a LoRAPublisher"
        )
    layer: nn.Module = model.get_submodule(path)
    return layer


def _plain_name(name: str) -> str:
    """The name without the modules that torch and peft put around others."""
    return WRAPPERS.sub("", name.removeprefix("base_model.model."))


def _adapted(path: str, layer: nn.Module) -> str:
    """Name of the param that the adapter of a layer changes."""
    inner, name = layer, "weight"
    if is_expert_adapter(layer):
        name = layer.parameter_name
    # peft wraps a module once for each of its params that has an adapter.
    while is_lora_layer(inner):
        path, inner = f"{path}.base_layer", inner.base_layer
    return f"{path}.{name}"


def _merged(weight: Tensor, matrices: dict[str, Tensor], layer: nn.Module, adapter: str) -> Tensor:
    """The weight with its adapter added, in the dtype of the weight.

    weight: [out, in], or that of E experts, [E, out, in] or [E, in, out].
    matrices: "A" [rank, in] and "B" [out, rank]; of experts "A" [E * rank, in] and "B"
        [out, rank * E].
    """
    assert is_lora_layer(layer)
    a, b = matrices["A"].float(), matrices["B"].float()
    # In float32, because a small change is lost when it is rounded to 16 bits before the sum.
    if weight.ndim == 2:
        change = b @ a
    else:
        experts = len(weight)
        # The order in which peft lays out the matrices of experts, which differs for A and B.
        a, b = a.view(experts, -1, a.shape[-1]), b.view(len(b), -1, experts)
        change = torch.einsum("ore,eri->eoi", b, a)
        # Such as GPT-OSS, whose experts are stored for x W and not for W x.
        if vars(layer.get_base_layer()).get("is_transposed", False):
            change = change.transpose(1, 2)
    scaling: float = layer.scaling[adapter]
    return (weight.float() + scaling * change).to(weight.dtype)
