"""Names of a trainer's params in the checkpoint that a server was started from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from peft import PeftModel
from torch import Tensor, nn

from ludic_gym.errors import ConfigError

Params = Iterable[tuple[str, Tensor]]
# Modules that torch and peft put around others; no checkpoint has them.
WRAPPERS = re.compile(r"(?<=\.)(_orig_mod|_checkpoint_wrapped_module|base_layer)\.|^_orig_mod\.")
LORA = re.compile(r"\.(lora_([AB]))\.[^.]+\.weight$")


def checkpoint_params(
    params: Params, *, lora_scaling: float | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The params under the names of the checkpoint, adapters merged.

    lora_scaling: alpha / rank of the adapters (Hu et al. 2021, arXiv:2106.09685); None for a model
        without. W + scaling * B A is computed in float32, in new memory.
    Raises ConfigError for adapters without a scaling, or of another kind than LoRA's matrices.
    """
    # peft lists the matrices A and B directly after the weight that they adapt, so one weight at a
    # time is held back. Merging happens in a copy: in place and back, rounding would add up.
    held: dict[str, Tensor] = {}
    base: tuple[str, Tensor] | None = None
    for name, tensor in params:
        if match := LORA.search(name):
            held[match[2]] = tensor
            if len(held) == 2:
                yield _merged(base, name, held, lora_scaling)
                held, base = {}, None
            continue
        if base is not None and "base_layer" not in name:
            raise ConfigError(f"adapters of {base[0]} are expected where {name} comes")
        if "lora_" in name or "modules_to_save" in name:
            raise ConfigError(f"{name} is no LoRA matrix that can be merged into a checkpoint")
        known = WRAPPERS.sub("", name.removeprefix("base_model.model."))
        if name.endswith("base_layer.weight"):
            base = known, tensor
        else:
            yield known, tensor


def lora_scaling(model: nn.Module) -> float | None:
    """Alpha / rank of the model's active adapter; None for a model without adapters.

    With rank-stabilised LoRA (`use_rslora`) the divisor is the root of the rank.
    """
    if not isinstance(model, PeftModel):
        return None
    config = model.peft_config[model.active_adapter]
    rank: float = config.r**0.5 if config.use_rslora else config.r
    return float(config.lora_alpha / rank)


def adapter_params(params: Params) -> Iterator[tuple[str, Tensor]]:
    """The LoRA matrices alone, under the names that an adapter's file has.

    Empty for params of a model without adapters.
    """
    for name, tensor in params:
        if LORA.search(name):
            yield LORA.sub(r".\1.weight", name), tensor


def _merged(
    base: tuple[str, Tensor] | None, name: str, held: dict[str, Tensor], scaling: float | None
) -> tuple[str, Tensor]:
    """Name and weight of the layer with its adapter added, in the dtype of the weight.

    base: name and weight [out, in]. name: of the second matrix, for errors.
    held: "A" [rank, in] and "B" [out, rank].
    """
    if scaling is None:
        raise ConfigError(
            f"{name} is of an adapter: give lora_scaling, alpha / rank, to publish it merged, or "
            "take a LoRAPublisher"
        )
    if base is None:
        raise ConfigError(f"{name} came before the params that it adapts")
    known, weight = base
    # In float32, because a small change is lost when it is rounded to 16 bits before the sum.
    change = held["B"].float() @ held["A"].float()
    return known, (weight.float() + scaling * change).to(weight.dtype)
