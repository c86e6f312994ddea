"""Params that a model with adapters sends: with its active adapter merged, or of that one alone.

Merged by peft's own rule for each layer: low-rank matrices of linear layers, of embeddings and of
experts, their biases, trained rows of tokens, and whole modules trained beside the matrices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ludic_gym.errors import ConfigError
from ludic_train.models.modules import (
    is_adapted,
    is_adapted_layer,
    is_expert_adapter,
    is_lora_layer,
    is_trained_beside,
    persistent_buffers,
    unwrapped,
)

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

Params = Iterable[tuple[str, Tensor]]
# Modules that torch and peft put around others; no checkpoint has them.
WRAPPERS = re.compile(r"(?<=\.)(_orig_mod|_checkpoint_wrapped_module)\.|^_orig_mod\.")
PEFT = "base_model.model."


def active_adapter(model: PeftModel) -> str:
    """Name of the one adapter that the model computes with. Raises ConfigError for several."""
    names = list(model.active_adapters)
    if len(names) != 1:
        raise ConfigError(
            f"the adapters {names} are active, and one is trained and served: call "
            "model.set_adapter(NAME)"
        )
    return str(names[0])


def merged_params(params: Params, model: nn.Module | None) -> Iterator[tuple[str, Tensor]]:
    """The params under the names that the model has without adapters, with its adapter merged.

    params: of `model`, whole, in its order; a layer of it is held in memory at a time.
    A merged param is computed in float32, in new memory: in place and back, rounding would add up.
    Adapters that are not active are left out.
    Raises ConfigError for adapters without a model, and for kinds of them that cannot be merged.
    """
    layers = _outermost(model)
    for path, group in groupby(params, key=lambda param: _layer_of(param[0], layers)):
        if path is None:
            for name, tensor in group:
                if "lora_" in name or "modules_to_save" in name:
                    raise ConfigError(
                        f"{name} belongs to an adapter: give the publisher its model, "
                        "FilesPublisher(urls, model=model), to publish it merged"
                    )
                yield _plain(name), tensor
            continue
        assert is_adapted(model)
        values = {name.removeprefix(f"{path}."): tensor for name, tensor in group}
        if lacking := dict(layers[path].named_parameters()).keys() - values.keys():
            raise ConfigError(f"the params of {path} come without {min(lacking)}: give all of them")
        layer = with_values(layers[path], values)
        for name, tensor in _merged(layer, active_adapter(model), path).items():
            yield f"{_plain(path)}.{name}", tensor


def base_params(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The params that the model has without adapters, as these found them."""
    layers = _outermost(model)
    for path, group in groupby(model.named_parameters(), lambda p: _layer_of(p[0], layers)):
        own = group if path is None else _base(layers[path]).named_parameters(path)
        yield from ((_plain(name), param) for name, param in own)


def base_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The persistent buffers that the model has without adapters."""
    layers = _outermost(model)
    for name, buffer in persistent_buffers(model).items():
        if _layer_of(name, layers) is None:
            yield _plain(name), buffer


def adapter_params(params: Params, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The low-rank matrices of the active adapter, under the names that an adapter's file has.

    params: of `model`. Empty for a model without adapters.
    """
    if not is_adapted(model):
        return
    ending = f".{active_adapter(model)}.weight"
    for name, tensor in params:
        if name.endswith(ending) and ".lora_" in name:
            yield f"{name.removesuffix(ending)}.weight", tensor


def check_served(model: nn.Module, *, adapter_alone: bool = False) -> None:
    """Raise ConfigError, with a name, for params that train and would not reach a server.

    adapter_alone: the matrices of the active adapter are sent, and not the merged model.
    """
    if not is_adapted(model):
        return
    _check_tied(model)
    # Without values: autograd tells of which params each one that is sent was made.
    params = {
        name: torch.empty_like(param, device="meta").requires_grad_(param.requires_grad)
        for name, param in model.named_parameters()
    }
    trained = {name: param for name, param in params.items() if param.requires_grad}
    if not trained:
        return
    rule = adapter_params if adapter_alone else merged_params
    sums = [t.float().sum() for _, t in rule(params.items(), model) if t.requires_grad]
    reached = torch.autograd.grad(sums, list(trained.values()), allow_unused=True) if sums else []
    lost = [name for name, grad in zip(trained, reached, strict=False) if grad is None]
    if lost := lost if sums else list(trained):
        remedy = f"the active adapter is {active_adapter(model)!r}: freeze it, or activate its own"
        if adapter_alone:
            remedy = "take FilesPublisher(urls, model=model), which sends the model merged"
        raise ConfigError(
            f"{lost[0]} trains, and would not be sent ({len(lost)} such params); {remedy}"
        )


def has_expert_adapters(model: nn.Module) -> bool:
    """True if adapters change the experts of a mixture, which are one param in memory."""
    return any(map(is_expert_adapter, model.modules()))


def has_tied_head(inner: PreTrainedModel) -> bool:
    """True if input embeddings and output head are one matrix, whatever adapters they have."""
    embeddings, head = inner.get_input_embeddings(), inner.get_output_embeddings()
    return head is not None and _base(embeddings).weight is _base(head).weight


def with_values(module: nn.Module, values: Mapping[str, Tensor], prefix: str = "") -> Any:  # noqa: ANN401 - of the module's type
    """A module like this one whose params are the given tensors; nothing is copied.

    values: by the names that the module's params have, with `prefix` before them.
    """
    # Not copy.copy: modules that FSDP has spread cannot be made by it.
    made = object.__new__(type(module))
    made.__dict__ = dict(module.__dict__)
    made.__dict__["_parameters"] = {n: values.get(prefix + n) for n in module._parameters}
    made.__dict__["_modules"] = {
        name: None if child is None else with_values(child, values, f"{prefix}{name}.")
        for name, child in module._modules.items()
    }
    return made


def _merged(layer: Any, adapter: str, path: str) -> dict[str, Tensor]:  # noqa: ANN401 - of peft
    """The params of a layer as one without adapters has them, by their names there."""
    if is_lora_layer(layer):
        merged = _merged(layer.base_layer, adapter, path)
        if adapter in layer.lora_variant:
            raise ConfigError(
                f"{path} has an adapter of the kind {type(layer.lora_variant[adapter]).__name__}, "
                "which no server is sent here: train plain LoRA"
            )
        if adapter not in layer.scaling:
            return merged
        name = layer.parameter_name if is_expert_adapter(layer) else "weight"
        # In float32, because a small change is lost when it is rounded to 16 bits before the sum.
        exact = with_values(layer, {n: p.float() for n, p in layer.named_parameters()})
        changes = {name: exact.get_delta_weight(adapter)}
        if layer.lora_bias.get(adapter):
            changes["bias"] = exact.lora_B[adapter].bias * layer.scaling[adapter]
        sums = {n: (merged[n].float() + c).to(merged[n].dtype) for n, c in changes.items()}
        return merged | sums
    if is_trained_beside(layer) and hasattr(layer, "modules_to_save"):
        whole = dict(layer.modules_to_save).get(adapter, layer.original_module)
        return dict(whole.named_parameters())
    # Rows of tokens, also inside the wrapper by which they are trained beside matrices.
    rows = layer.token_adapter if is_trained_beside(layer) else layer
    if hasattr(rows, "get_merged_weights"):
        own = dict(rows.base_layer.named_parameters())
        adapters = [adapter] if adapter in rows.token_indices else []
        return own | {"weight": rows.get_merged_weights(adapters)}
    if is_adapted_layer(layer):
        raise ConfigError(
            f"{path} has an adapter of the kind {type(layer).__name__}, which no server is sent "
            "here: train LoRA, or all params"
        )
    return dict(layer.named_parameters())


def _outermost(model: nn.Module | None) -> dict[str, nn.Module]:
    """The layers of peft that lie in no other one, by their names."""
    layers: dict[str, nn.Module] = {}
    for name, module in () if model is None else model.named_modules():
        is_layer = is_adapted_layer(module) or is_trained_beside(module)
        if is_layer and _layer_of(name, layers) is None:
            layers[name] = module
    return layers


def _layer_of(name: str, layers: Mapping[str, nn.Module]) -> str | None:
    """Name of the layer that a param belongs to; None for one of no layer of peft."""
    if not layers:
        return None
    parts = name.split(".")
    paths = (".".join(parts[:end]) for end in range(1, len(parts)))
    return next((path for path in paths if path in layers), None)


def _plain(name: str) -> str:
    return WRAPPERS.sub("", name.removeprefix(PEFT))


def _check_tied(model: PeftModel) -> None:
    """Raise ConfigError where tied embeddings and head would be served with different values."""
    inner = unwrapped(model)
    if not has_tied_head(inner):
        return
    embeddings, head = inner.get_input_embeddings(), inner.get_output_embeddings()
    ours, theirs = ({id(p) for p in m.parameters() if p.requires_grad} for m in (embeddings, head))
    if ours != theirs:
        raise ConfigError(
            f"{type(inner).__name__} has one matrix for input embeddings and output head "
            "(tie_word_embeddings), and an adapter changes one of the two alone, which no server "
            "could hold: leave both out of the adapter's targets"
        )


def _base(layer: Any) -> Any:  # noqa: ANN401 - of peft
    """The layer inside all of peft's."""
    while is_adapted_layer(layer) or is_trained_beside(layer):
        layer = layer.original_module if is_trained_beside(layer) else layer.base_layer
    return layer
