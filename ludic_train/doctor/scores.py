"""Log-probs and greedy tokens of the trainer's model, for tokens that a server sampled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ludic_gym.types import Completion
from ludic_train.inference.sampling import log_distribution

LOW_PRECISION = (torch.bfloat16, torch.float16)


@torch.no_grad()
def expected_logprobs(model: nn.Module, completion: Completion) -> Tensor:
    """Log-probs [T] of the completion's tokens at its temperature, within its nucleus; nats."""
    prompt, ids = list(completion.prompt_ids or ()), list(completion.completion_ids or ())
    row = torch.tensor([prompt + ids], device=next(model.parameters()).device)
    logits = model(row).logits[0, len(prompt) - 1 : -1]
    sampling = completion.sampling
    temperature, top_p = (
        np.full(len(ids), value, np.float32) for value in (sampling.temperature, sampling.top_p)
    )
    logprobs = log_distribution(logits, temperature, top_p)
    return logprobs.gather(1, row[0, len(prompt) :, None])[:, 0].cpu()


def differences(model: nn.Module, completions: Sequence[Completion]) -> Tensor:
    """|log-prob of the server - log-prob of the trainer| of all tokens, nats."""
    each = [
        (torch.tensor(c.logprobs or ()) - expected_logprobs(model, c)).abs() for c in completions
    ]
    return torch.cat(each)


@torch.no_grad()
def greedy_ids(model: nn.Module, prompt: Sequence[int], length: int) -> tuple[int, ...]:
    """The likeliest `length` tokens after the prompt."""
    device = next(model.parameters()).device
    ids = list(prompt)
    for _ in range(length):
        logits = model(torch.tensor([ids], device=device)).logits[0, -1]
        ids.append(int(logits.argmax()))
    return tuple(ids[len(prompt) :])


def tolerance(*dtypes: torch.dtype) -> float:
    """The mean difference, in nats, that rounding explains if one of these dtypes is used."""
    return 0.05 if any(dtype in LOW_PRECISION for dtype in dtypes) else 1e-4
