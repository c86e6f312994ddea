"""From a trainer's params to those of the checkpoint that a server was started from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from torch import Tensor, nn

from ludic_gym.errors import ConfigError

Params = Iterable[tuple[str, Tensor]]
PEFT_PREFIX = "base_model.model."
# What torch and peft wrap around a module, and no checkpoint knows.
WRAPPERS = re.compile(r"(?<=\.)(_orig_mod|_checkpoint_wrapped_module|base_layer)\.|^_orig_mod\.")
LORA = re.compile(r"\.lora_([AB])\.[^.]+\.weight$")


def checkpoint_params(
    params: Params,
    *,
    lora_scaling: float | None = None,
    keep: Callable[[str], bool] = lambda name: True,
) -> Iterator[tuple[str, Tensor]]:
    """The params under the names of the checkpoint, adapters merged into new memory.

    lora_scaling: alpha / rank of the adapters (Hu et al. 2021, arXiv:2106.09685); None where there
        are none. W + scaling * B A is computed in float32, and the params stay as they are:
        merging in place and back would make them drift.
    keep: whether a param of that name is wanted.
    Raises ConfigError for adapters without a scaling, or of another kind than LoRA's matrices.
    """
    held: dict[str, Tensor] = {}
    base: tuple[str, Tensor] | None = None
    for name, tensor in params:
        if match := LORA.search(name):
            held[match[1]] = tensor
            if len(held) == 2:
                yield _merged(base, name, held, lora_scaling)
                held, base = {}, None
            continue
        if base is not None and "base_layer" not in name:
            raise ConfigError(f"adapters of {base[0]} are expected where {name} comes")
        if "lora_" in name or "modules_to_save" in name:
            raise ConfigError(f"{name} is no LoRA matrix that can be merged into a checkpoint")
        known = _plain(name)
        if not keep(known):
            continue
        if name.endswith("base_layer.weight"):
            base = known, tensor
        else:
            yield known, tensor


def lora_scaling(model: nn.Module) -> float | None:
    """What `checkpoint_params` needs of the model: alpha / rank; None without adapters."""
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        return None
    config = model.peft_config[model.active_adapter]
    rank: float = config.r**0.5 if config.use_rslora else config.r
    return float(config.lora_alpha / rank)


def adapter_params(params: Params) -> Iterator[tuple[str, Tensor]]:
    """The LoRA matrices alone, under the names that an adapter's file has."""
    for name, tensor in params:
        if LORA.search(name):
            yield re.sub(r"\.(lora_[AB])\.[^.]+\.weight$", r".\1.weight", name), tensor


def _merged(
    base: tuple[str, Tensor] | None, name: str, held: dict[str, Tensor], scaling: float | None
) -> tuple[str, Tensor]:
    if scaling is None:
        raise ConfigError(
            f"{name} is of an adapter: give lora_scaling, alpha / rank, to publish it merged, or "
            "take a LoRAPublisher"
        )
    if base is None:
        raise ConfigError(f"{name} came before the params that it adapts")
    known, weight = base
    change = held["B"].float() @ held["A"].float()
    return known, (weight.float() + scaling * change).to(weight.dtype)


def _plain(name: str) -> str:
    return WRAPPERS.sub("", name.removeprefix(PEFT_PREFIX))
