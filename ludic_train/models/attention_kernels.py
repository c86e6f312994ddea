"""Attention of updates: the implementation that is chosen, and the kernels that passes use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from ludic_gym.errors import ConfigError
from ludic_train.models.logprobs import unwrapped

KERNELS = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}


class Attention(NamedTuple):
    """A kernel of attention, and the type that it computes in.

    kernel: of torch's scaled_dot_product_attention, "flash", "efficient" and "cudnn" hold a part of
        the scores at a time; "math" holds all of them, in memory that grows with the square of the
        length. Others have the name of their implementation in transformers.
    dtype: such as "bfloat16".
    """

    kernel: str
    dtype: str


def set_attention(model: nn.Module, name: str) -> None:
    """Have the model attend by an implementation of transformers, such as "flash_attention_2".

    Raises ConfigError for one that is not installed, or that the architecture does not have.
    """
    inner = unwrapped(model)
    if inner.config._attn_implementation == name:
        return
    try:
        inner.set_attn_implementation(name)
    except (ImportError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        remedy = "attention='sdpa' needs no further package"
        raise ConfigError(f"attention={name!r}: {reason}; {remedy}") from error


def attention_for(
    name: str, device: str, dtype: str, installed: Callable[[], Sequence[str]] | None = None
) -> str | None:
    """The implementation that suits a device and a precision; None leaves the model's own.

    "auto" is flash-attn where it is installed, for 16 bits on a card: it reads items that share a
    row without a mask. installed: names of implementations beside torch's, the best first.
    """
    if name != "auto":
        return name
    if device == "cpu" or dtype != "bf16":
        return None
    return next(iter((installed or flash_attention)()), None)


def flash_attention() -> list[str]:
    """Names of the implementations of flash-attn that are installed, the newest first."""
    known = {
        "flash_attention_3": is_flash_attn_3_available,
        "flash_attention_2": is_flash_attn_2_available,
    }
    return [name for name, is_available in known.items() if is_available()]


class NotedAttention(TorchFunctionMode):
    """A context that adds the kernels of the forward passes in it to `found`.

    Those of compiled functions are not seen. Kernels outside of torch's own function are named at
    the end, by the model's implementation.
    """

    def __init__(self, found: set[Attention], model: nn.Module | None = None) -> None:
        super().__init__()
        self.found, self._model = found, model
        self._dtype = ""

    def __exit__(self, *error: object) -> None:
        """End the context."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self._model is not None and self._dtype and not self.found:
            implementation = unwrapped(self._model).config._attn_implementation
            self.found.add(Attention(str(implementation), self._dtype))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the function returns
        """Run the function, and note the kernel if it is an attention."""
        kwargs = kwargs or {}
        # torch.compile traces this method too, and cannot trace the choice.
        if func is F.scaled_dot_product_attention and not torch.compiler.is_compiling():
            # The very choice that the function makes from these arguments.
            number = torch._fused_sdp_choice(*args, **kwargs)
            query = args[0] if args else kwargs["query"]
            kernel = KERNELS.get(SDPBackend(number), "other")
            self.found.add(Attention(kernel, str(query.dtype).removeprefix("torch.")))
        if func is F.embedding and len(args) > 1:
            # Of the table, in which all that follows is computed.
            self._dtype = str(args[1].dtype).removeprefix("torch.")
        return func(*args, **kwargs)
