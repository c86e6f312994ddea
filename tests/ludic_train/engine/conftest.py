"""Small random models of every family, and what transformers itself computes with them."""

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

VOCAB = 300
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 24}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 200}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "mixtral": (MixtralForCausalLM, MixtralConfig, {"num_local_experts": 4}),
    "qwen3_moe": (
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig,
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "head_dim": 24,
            "mlp_only_layers": [1],
        },
    ),
    "llama3": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": LLAMA3_ROPE}),
}


@pytest.fixture(scope="session")
def make_model():
    """`make_model(family, tied)`: a model whose every param, biases and norms too, is random."""

    def make(family, tied=True, **overrides):
        model_class, config_class, extra = FAMILIES[family]
        shape = {
            "vocab_size": VOCAB,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 96,
            "max_position_embeddings": 256,
            "initializer_range": 0.1,
            "tie_word_embeddings": tied,
            "bos_token_id": None,
            "eos_token_id": 2,
        }
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = model_class(config_class(**{**shape, **extra, **overrides}))
            for name, param in model.named_parameters():
                if param.ndim == 1:
                    torch.nn.init.normal_(param, mean=float("norm" in name), std=0.3)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer(["1 2 X\n4 O 6\n7 8 9", "Reply with the number of a free cell."])


@pytest.fixture
def model(tokenizer):
    return make_tiny_model(tokenizer, max_positions=256).eval()


@pytest.fixture(scope="session")
def reference_logits():
    """`reference_logits(model, ids)`: transformers' forward over one whole sequence, [T, V]."""

    def logits(model, ids):
        with torch.no_grad():
            return model(torch.tensor([ids]), use_cache=False).logits[0].float()

    return logits
