"""Small models of random weights, one per architecture of transformers."""

from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
)

SIZES = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DELTA_NET = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
# What else these need to be small (... leaves a setting out), and factors far from 1.
FURTHER = {
    "afmoe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
              "num_dense_layers": 1, "layer_types": ["sliding_attention", "full_attention"],
              "sliding_window": 16},
    "bloom": {"n_layer": 2, "n_head": 4},
    "cohere": {"logit_scale": 3.0},
    "cohere2": {"logit_scale": 3.0},
    "falcon_h1": {"lm_head_multiplier": 2.5, "mamba_d_ssm": 32, "mamba_n_heads": 4,
                  "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1},
    "gemma2": {"final_logit_softcapping": 0.2},
    "gemma3_text": {"final_logit_softcapping": 0.2, "sliding_window": 16,
                    "layer_types": ["sliding_attention", "full_attention"]},
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8},
    "falcon": {"head_dim": ...},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "granite": {"logits_scaling": 0.3},
    "granitemoe": {"logits_scaling": 0.3, "num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {"num_local_experts": 4, "intermediate_size_mlp": 48, "moe_layers": [1],
                    "attention_chunk_size": 64},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "jamba": {"num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 2,
              "attn_layer_offset": 1, "mamba_d_state": 8, "use_mamba_kernels": False},
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1,
              "attn_layer_indices": [1]},
    "nemotron_h": {"mamba_num_heads": 8, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1,
                   "layers_block_type": ["mamba", "attention"]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "mamba_n_heads": 8,
                         "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1,
                         "num_local_experts": 4, "num_experts_per_tok": 2,
                         "shared_intermediate_size": 24},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
    "deepseek_v3": {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "head_dim": ...,
                    "qk_rope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4,
                    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
                    "n_shared_experts": 1},
    "gemma4_text": {"layer_types": ["sliding_attention", "full_attention"], "global_head_dim": 8,
                    "sliding_window": 16, "hidden_size_per_layer_input": 8,
                    "vocab_size_per_layer_input": 512, "num_kv_shared_layers": 0},
    "mamba": {"state_size": 8},
    "minicpm3": {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
                 "qk_rope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4},
    "nanochat": {"final_logit_softcapping": 0.2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                  "shared_expert_intermediate_size": 24},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "qwen3_5_text": {"layer_types": ["linear_attention", "full_attention"], **DELTA_NET},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"], **DELTA_NET,
                   "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                   "shared_expert_intermediate_size": 24},
    "recurrent_gemma": {"logits_soft_cap": 0.2, "lru_width": 32},
    "vaultgemma": {"final_logit_softcapping": 0.2},
}  # fmt: skip
# Models that compute with more than params: tensors that no gradient reaches.
_MIXTURE = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
FURTHER |= {
    "glm4_moe": _MIXTURE,
    "dots1": _MIXTURE,
    "minimax_m2": {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "lfm2_moe": {
        "num_experts": 4,
        "num_dense_layers": 1,
        "num_experts_per_tok": 2,
        "layer_types": ["conv", "full_attention"],
        "moe_intermediate_size": 24,
    },
}
WITH_BUFFERS = [
    "deepseek_v3",
    "glm4_moe",
    "dots1",
    "minimax_m2",
    "lfm2_moe",
    "gemma4_text",
    "apertus",
]
ARCHITECTURES = [
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma",
    "gemma2", "gemma3_text", "phi", "phi3", "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt",
    "bloom", "codegen", "cohere", "cohere2", "granite", "granitemoe", "granitemoeshared",
    "olmo", "olmo2", "olmo3", "olmoe", "starcoder2", "stablelm", "falcon", "falcon_h1",
    "persimmon", "nemotron", "glm", "glm4", "smollm3", "helium", "exaone4", "ernie4_5",
    "hunyuan_v1_dense", "apertus", "arcee", "seed_oss", "vaultgemma", "nanochat", "mamba",
    "recurrent_gemma", "ministral", "minicpm3", "phimoe", "qwen3_next", "llama4_text",
    "qwen3_5_text", "lfm2", "jamba", "bamba", "nemotron_h", "gpt_oss", "deepseek_v3", "gemma4_text",
    "granitemoehybrid", "afmoe",
]  # fmt: skip


def made(name: str, **others: Any) -> PreTrainedModel:
    """A model in eval mode, whose logits are as far apart as those of trained models."""
    settings = {**SIZES, **FURTHER.get(name, {}), **others}
    config = AutoConfig.for_model(name, **{n: v for n, v in settings.items() if v is not ...})
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for param in model.parameters():
            if param.ndim > 1:
                param.normal_(0, 0.3)
    return model.eval()


# With towers for pictures, which no text reaches.
_TEXT = {"layer_types": ["full_attention"] * 2}
_MIXED = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
WITH_TOWERS = {"qwen3_vl": {}, "mistral3": {}, "gemma3": _TEXT, "qwen3_5": _MIXED, "llava": {}}


def made_with_tower(name: str) -> PreTrainedModel:
    """A small model of texts and pictures in eval mode, of the class that checkpoints have."""
    config = AutoConfig.for_model(name)
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "depth": 1,
              "num_attention_heads": 2, "num_heads": 2, "patch_size": 4, "image_size": 16,
              "out_hidden_size": 32}  # fmt: skip
    text = {**config.text_config.to_dict(), **SIZES, "vocab_size": 320, **WITH_TOWERS[name]}
    whole = type(config)(
        text_config=text, vision_config={**config.vision_config.to_dict(), **vision}
    )
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForImageTextToText.from_config(whole).float()
    return model.eval()
