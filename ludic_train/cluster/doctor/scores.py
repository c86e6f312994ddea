"""Log-probs and greedy tokens of the trainer's model, for tokens that a server sampled."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ludic_gym.sampling import packed_masks
from ludic_gym.types import Completion
from ludic_train.engine.sampling import draws_of, log_distribution

LOW_PRECISION = (torch.bfloat16, torch.float16)


def expected_logprobs(model: nn.Module, completion: Completion) -> Tensor:
    """Log-probs [T] of the completion's tokens at its temperature, within its nucleus.

    In nats, float32, on the CPU. T: number of the completion's tokens; its token ids are required.
    """
    logits, ids = _logits_and_ids(model, completion)
    draws = draws_of([completion.sampling] * len(ids))
    return log_distribution(logits, draws).gather(1, ids[:, None])[:, 0].cpu()


def expected_masks(model: nn.Module, completion: Completion) -> bytes:
    """The sampling masks of the completion's tokens under the model, as `packed_masks` packs them.

    A token that the model leaves out is counted as one of its mask.
    """
    logits, ids = _logits_and_ids(model, completion)
    draws = draws_of([completion.sampling] * len(ids))
    inside = log_distribution(logits, draws).isfinite().scatter(1, ids[:, None], True)
    drawn = ids.tolist()
    return packed_masks([row.nonzero()[:, 0].cpu().numpy() for row in inside], drawn)


def is_greedy(model: nn.Module, completion: Completion) -> bool:
    """True if each token of the completion is the likeliest one after those before it.

    Of equal logits, only the one that argmax finds counts.
    """
    # One pass is enough: if every token is the likeliest, greedy decoding has the same prefixes.
    logits, ids = _logits_and_ids(model, completion)
    return bool((logits.argmax(-1) == ids).all())


@torch.no_grad()
def _logits_and_ids(model: nn.Module, completion: Completion) -> tuple[Tensor, Tensor]:
    """Logits [T, V] for the completion's tokens, and their ids [T]."""
    prompt, ids = list(completion.prompt_ids or ()), list(completion.completion_ids or ())
    # One completion at a time: a padded batch could round differently.
    row = torch.tensor([prompt + ids], device=next(model.parameters()).device)
    # The logits at a position predict the token after it.
    return model(row).logits[0, len(prompt) - 1 : -1], row[0, len(prompt) :]


def differences(model: nn.Module, completions: Sequence[Completion]) -> Tensor:
    """|log-prob of the server - log-prob of the trainer| of all tokens, in nats, [sum of T].

    completions: with token ids and the server's log-probs.
    """
    each = [
        (torch.tensor(c.logprobs or ()) - expected_logprobs(model, c)).abs() for c in completions
    ]
    return torch.cat(each)


def tolerance(*dtypes: torch.dtype) -> float:
    """The mean difference, in nats, that rounding explains if one of these dtypes is used.

    0.05 for 16-bit types, 1e-4 for float32.
    """
    # bfloat16 has 8 significant bits: a logit near 20 is off by up to 0.06.
    return 0.05 if any(dtype in LOW_PRECISION for dtype in dtypes) else 1e-4
