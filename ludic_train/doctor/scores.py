"""What the trainer's model makes of tokens that a server sampled."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ludic_gym.types import Completion

LOW_PRECISION = (torch.bfloat16, torch.float16)


@torch.no_grad()
def expected_logprobs(model: nn.Module, completion: Completion) -> Tensor:
    """Log-probs [T] of the completion's tokens at its temperature, within its nucleus."""
    prompt, ids = list(completion.prompt_ids or ()), list(completion.completion_ids or ())
    device = next(model.parameters()).device
    row = torch.tensor([prompt + ids], device=device)
    logits = model(row).logits[0, len(prompt) - 1 : -1].float()
    logits = logits / completion.sampling.temperature
    logprobs = nucleus(logits, completion.sampling.top_p).log_softmax(-1)
    return logprobs.gather(1, row[0, len(prompt) :, None])[:, 0].cpu()


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """The logits, -inf outside the smallest set of tokens with at least `top_p` of probability."""
    if top_p >= 1:
        return logits
    ranked, order = logits.sort(descending=True)
    before = ranked.softmax(-1).cumsum(-1) - ranked.softmax(-1)
    outside = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= top_p)
    return logits.masked_fill(outside, -torch.inf)


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
    """The mean difference, in nats, that rounding explains where one of these is computed in."""
    return 0.05 if any(dtype in LOW_PRECISION for dtype in dtypes) else 1e-4
