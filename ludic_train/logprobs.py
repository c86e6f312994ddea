"""Log-probs and entropies of action tokens, in memory that does not grow with the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ludic_train.losses import TokenLogprobs

# Logits of this many tokens exist at a time: 1024 x 152k float32 is 0.6 GB.
CHUNK_TOKENS = 1024


def action_logprobs(
    model: nn.Module,
    input_ids: Tensor,
    row: Tensor,
    column: Tensor,
    temperature: Tensor,
    position_ids: Tensor | None = None,
) -> TokenLogprobs:
    """Log softmax(logits / temperature) of the tokens at (row, column), float32 nats [N].

    input_ids: int64 [B, T], right-padded rows. row, column: int64 [N], column >= 1: the logits
    that predict a token stand one position before it. temperature: float32 [N].
    position_ids: int64 [B, T], starting again with each of several items in a row; None for one
    item per row.
    Only hidden states of action tokens meet the vocabulary, a chunk at a time; the backward pass
    computes the chunk's logits again instead of keeping them.
    """
    causal_lm = unwrapped(model)
    # No attention mask: padding is on the right, and a causal token never looks there. With one,
    # transformers would not look for items in the positions either.
    hidden = causal_lm.get_decoder()(
        input_ids=input_ids[:, :-1],
        position_ids=None if position_ids is None else position_ids[:, :-1],
        use_cache=False,
    )[0]
    head = causal_lm.get_output_embeddings()
    targets = input_ids[row, column]
    selected = hidden[row, column - 1]
    if len(targets) <= CHUNK_TOKENS:
        logprobs, entropy = _chunk_logprobs(head, selected, targets, temperature)
        return TokenLogprobs(logprobs=logprobs, entropy=entropy)
    chunks = [
        checkpoint(_chunk_logprobs, head, h, t, temp, use_reentrant=False)
        for h, t, temp in zip(
            torch.split(selected, CHUNK_TOKENS),
            torch.split(targets, CHUNK_TOKENS),
            torch.split(temperature, CHUNK_TOKENS),
            strict=True,
        )
    ]
    logprobs_, entropies = zip(*chunks, strict=True)
    return TokenLogprobs(logprobs=torch.cat(logprobs_), entropy=torch.cat(entropies))


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The transformers model inside a peft wrapper, its adapters in place; or the model itself."""
    from peft import PeftModel

    inner: PreTrainedModel = model.get_base_model() if isinstance(model, PeftModel) else model
    return inner


def _chunk_logprobs(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: Tensor
) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float() / temperature[:, None]
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, targets[:, None])[:, 0], entropy
