"""Updates of a small model, by Ludic's trainer and by the loop by hand of `trainer.py`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from trainer import BUDGET, LARGER, hand_made_update, sampled_tail
from trainer import rows as random_rows
from transformers import LlamaConfig, LlamaForCausalLM

from harness.rates import Work
from ludic_train.algorithms.presets import grpo
from ludic_train.trainer.config import Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer

LENGTH = 22
# Padded, they are twice as many tokens.
UNEVEN = [8 + 248 * i * i // 15**2 for i in range(16)]
SMALLER = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}


def model_of(vocab: int) -> LlamaForCausalLM:
    """A model of width 64 with random weights, the same for each call."""
    torch.manual_seed(0)
    shape = {**LARGER, **SMALLER, "vocab_size": vocab}
    return LlamaForCausalLM(LlamaConfig(**shape)).eval()


def updates(*, rows: int = 16, vocab: int = 1_000, lengths: Sequence[int] = ()) -> Work:
    """Tokens of updates by the trainer, from so many equal rows, or from rows of these lengths."""
    lengths = lengths or [LENGTH] * rows
    items = random_rows([sampled_tail(length) for length in lengths])
    cfg = TrainerConfig(micro_token_budget=BUDGET, guards=Guards(max_kl_at_lag_0=None))
    trainer = Trainer(model_of(vocab), grpo(), None, cfg=cfg)
    while True:
        trainer.update(items)
        yield sum(lengths)


def updates_by_hand(*, rows: int = 16, vocab: int = 1_000, lengths: Sequence[int] = ()) -> Work:
    """Tokens of updates by the loop by hand."""
    lengths = lengths or [LENGTH] * rows
    items, model = random_rows([sampled_tail(length) for length in lengths]), model_of(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    while True:
        hand_made_update(model, optimizer, items)
        yield sum(lengths)
