"""The operations of a model between its output head and its logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from transformers import PretrainedConfig

LogitFinish = Callable[[Tensor], Tensor]
# Names in configs: Cohere, Falcon H1 and others multiply, Granite divides, and Gemma and others
# bend large logits by cap * tanh(logits / cap), arXiv:2408.00118.
FACTORS = ("logit_scale", "lm_head_multiplier", "output_multiplier")
DIVISORS = ("logits_scaling",)
CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")


def logit_finish(config: PretrainedConfig) -> LogitFinish:
    """A function that makes logits of what the head of such a model returns.

    It leaves those of most models as they are.
    """
    text = config.get_text_config()
    factor = 1.0
    for name in FACTORS:
        factor *= getattr(text, name, None) or 1.0
    for name in DIVISORS:
        factor /= getattr(text, name, None) or 1.0
    cap = next((value for name in CAPS if (value := getattr(text, name, None))), None)
    return partial(_finished, factor=factor, cap=cap)


def _finished(logits: Tensor, *, factor: float, cap: float | None) -> Tensor:
    """The logits scaled, and then capped."""
    if factor != 1.0:
        logits = logits * factor
    return logits if cap is None else cap * torch.tanh(logits / cap)
