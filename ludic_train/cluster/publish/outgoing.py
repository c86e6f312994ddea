"""Params on their way to servers: finite, and in the type that the servers compute in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch
from torch import Tensor, nn

from ludic_train.errors import PublishError

# Types in which params of 32 bits are sent where the servers compute in them.
SHORT = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def outgoing(
    params: Iterable[tuple[str, Tensor]], dtype: str | None, model: nn.Module | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The params, those of 32 bits rounded to a server's type of 16 bits, each checked.

    dtype: that the servers compute in, such as "bfloat16"; None leaves all params as they are.
    model: whose architecture names the modules that stay in float32; None for none.
    Raises PublishError for a param with a value that is NaN or infinite, also after rounding.
    """
    short, stays = SHORT.get(dtype or ""), float32_modules(model)
    for name, tensor in params:
        rounded = tensor.detach()
        if short is not None and tensor.dtype == torch.float32 and not _is_in(name, stays):
            rounded = rounded.to(short)
        # After the rounding: a finite float32 above 65504 is infinite in float16.
        require_finite(name, rounded)
        yield name, rounded


def float32_modules(model: nn.Module | None) -> Collection[str]:
    """Parts of names that transformers keeps in float32, also in models of 16 bits."""
    names: set[str] = set()
    for module in () if model is None else model.modules():
        # Attributes of transformers' models, at any depth below the wrappers of peft.
        for attribute in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict"):
            names |= set(getattr(module, attribute, None) or ())
    return names


def require_finite(name: str, tensor: Tensor) -> None:
    """Raises PublishError if a value is NaN or infinite."""
    # In float32, because a sum in float16 overflows above 65504.
    if not tensor.is_floating_point() or bool(tensor.sum(dtype=torch.float32).isfinite()):
        return
    # The sum alone can overflow.
    bad = int(tensor.numel() - tensor.isfinite().sum())
    if bad:
        raise PublishError(
            f"{name} has {bad} of {tensor.numel()} values that are NaN or infinite, and is not "
            "published: the last update broke the params; resume from a checkpoint before it, with "
            "a lower learning rate"
        )


def _is_in(name: str, parts: Collection[str]) -> bool:
    return any(part in name for part in parts)
