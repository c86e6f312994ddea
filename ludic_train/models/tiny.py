"""Tiny models made from nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ludic_gym.errors import ConfigError
from ludic_train.models.load import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def make_tiny_model(
    tokenizer: PreTrainedTokenizerBase,
    *,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    max_positions: int = 2048,
    initializer_range: float = 0.09,
    seed: int = 0,
) -> PreTrainedModel:
    """Randomly initialised Qwen3-shaped model in float32, equal for equal seeds.

    tokenizer: gives the vocabulary and the ids of its special tokens.
    num_kv_heads: heads of keys and values, each shared by num_heads / num_kv_heads heads.
    max_positions: tokens of the longest sequence.
    initializer_range: standard deviation of the initial params; a value far above the usual 0.02 is
        needed for a model this narrow to learn quickly.
    torch's global random state is left as it was.
    Raises ConfigError if the heads do not divide the hidden size or each other.

    >>> from ludic_train import make_tokenizer
    >>> model = make_tiny_model(make_tokenizer(["2 + 3 = 5"]), hidden_size=32, num_layers=1)
    >>> sum(param.numel() for param in model.parameters())
    21296
    """
    if hidden_size % (2 * num_heads) or num_heads % num_kv_heads:
        raise ConfigError(
            f"hidden_size={hidden_size} must be a multiple of 2 * num_heads={num_heads}, and that "
            f"of num_kv_heads={num_kv_heads}"
        )
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=hidden_size // num_heads,
        max_position_embeddings=max_positions,
        initializer_range=initializer_range,
        # As the small models of this family are.
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    # From a generator of its own: a program's other draws do not depend on the model's size.
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)
