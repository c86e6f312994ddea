"""Updates of a small model, by Ludic's trainer and by the loop by hand of `trainer.py`."""

from __future__ import annotations

import torch
from trainer import BUDGET, LARGER, hand_made_update, sampled_tail
from trainer import rows as random_rows
from transformers import LlamaConfig, LlamaForCausalLM

from harness.rates import Work
from ludic_train.algorithms.presets import grpo
from ludic_train.trainer.config import Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer

LENGTH = 22
SMALLER = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4}


def model_of(vocab: int) -> LlamaForCausalLM:
    """A model of width 64 with random weights, the same for each call."""
    torch.manual_seed(0)
    shape = {**LARGER, **SMALLER, "vocab_size": vocab}
    return LlamaForCausalLM(LlamaConfig(**shape)).eval()


def updates(*, rows: int = 16, vocab: int = 1_000) -> Work:
    """Tokens of updates by the trainer."""
    items = random_rows([sampled_tail(LENGTH)] * rows)
    cfg = TrainerConfig(micro_token_budget=BUDGET, guards=Guards(max_kl_at_lag_0=None))
    trainer = Trainer(model_of(vocab), grpo(), None, cfg=cfg)
    while True:
        trainer.update(items)
        yield rows * LENGTH


def updates_by_hand(*, rows: int = 16, vocab: int = 1_000) -> Work:
    """Tokens of updates by the loop by hand."""
    items, model = random_rows([sampled_tail(LENGTH)] * rows), model_of(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    while True:
        hand_made_update(model, optimizer, items)
        yield rows * LENGTH
