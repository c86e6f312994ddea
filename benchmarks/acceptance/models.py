"""Models with random params, for machines that can download none."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from harness.shapes import SHAPES, random_model
from tokenizers import Tokenizer
from transformers import (
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import PAD, TURN_END, make_tokenizer

TEXTS = ["What is 12 + 30? Solve the problem. The answer is <answer>42</answer>."]
# Random params make nearly equal logits, which hide errors that sharp ones show. With this factor
# log-probs of the 0.5B model reach -24, and bfloat16 moves them by about 0.03.
SHARPNESS = 3.0
REWARD = '''"""Rewards by lot, the same for the same reply: a random model solves no task."""

import zlib


def reward(rollout):
    ids = [c.completion_ids for step in rollout.steps for c in step.decision.completions]
    return zlib.crc32(repr(ids).encode()) / 2**32
'''


def write_random_model(folder: Path, size: str, dtype: torch.dtype) -> None:
    """Write a model of `SHAPES[size]`, and a tokenizer that has a text for each of its ids."""
    tokenizer = tokenizer_of(SHAPES[size].vocab_size)
    model = random_model(size).to(dtype)
    with torch.no_grad():
        model.model.norm.weight.mul_(SHARPNESS)
    model.config.update({"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None})
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    save_model(model, tokenizer, folder)


def write_mixture(folder: Path, dtype: torch.dtype) -> None:
    """Write a small mixture of 8 experts, 2 of which read a token."""
    tokenizer = make_tokenizer(TEXTS)
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=128,
        moe_intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        num_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        max_position_embeddings=4096,
        initializer_range=0.1,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype=dtype,
    )
    save_model(Qwen3MoeForCausalLM(config).to(dtype), tokenizer, folder)


def write_exact_model(folder: Path) -> None:
    """Write a tiny model of an architecture that `--exact` knows."""
    tokenizer = make_tokenizer(TEXTS)
    save_model(make_tiny_model(tokenizer, num_heads=2, num_kv_heads=1), tokenizer, folder)


def tokenizer_of(vocabulary: int) -> PreTrainedTokenizerBase:
    """A tokenizer with so many ids, of which those that no text is made of are words too."""
    # Tokenizers of Qwen2 models add this one, which would have no row in the embeddings.
    small = make_tokenizer(TEXTS, special_tokens=["<|endoftext|>"])
    described = json.loads(small.backend_tokenizer.to_str())
    known = described["model"]["vocab"]
    known |= {f"unused{number}": number for number in range(len(small), vocabulary)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(described)),
        pad_token=PAD,
        eos_token=TURN_END,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = small.chat_template
    return tokenizer
