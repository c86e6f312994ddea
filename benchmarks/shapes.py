"""Shapes of chat models, and models of random params in them."""

from __future__ import annotations

import copy

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from ludic_train.models.exact import make_exact

SHAPES: dict[str, PretrainedConfig] = {
    # Of a hundredth of the products of 135M.
    "tiny": LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        # vLLM's attention on most CPUs knows none of 16.
        head_dim=32,
        tie_word_embeddings=True,
    ),
    # Of SmolLM2-135M.
    "135M": LlamaConfig(
        vocab_size=49_152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    ),
    # Of Qwen2.5.
    **{
        size: Qwen2Config(
            vocab_size=151_936,
            hidden_size=hidden,
            intermediate_size=mlp,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
        for size, hidden, mlp, layers, heads in (
            ("0.5B", 896, 4864, 24, 14),
            ("1.5B", 1536, 8960, 28, 12),
        )
    },
    # Of Qwen3.
    "0.6B": Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
    ),
}


def random_model(shape: str, *, exact: bool = False, device: str = "cpu") -> PreTrainedModel:
    """A random model of SHAPES, the same for each call, that knows no token that ends a text.

    exact: True for the attention of `--exact`. device: where its params are drawn.
    """
    torch.manual_seed(0)
    config = copy.deepcopy(SHAPES[shape])
    config.bos_token_id = config.eos_token_id = None
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    if exact:
        make_exact(model)
    return model
