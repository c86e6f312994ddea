"""A server that gets the params of a model with adapters computes the same log-probs."""

import copy

import pytest
import torch
from model_types import made
from peft import LoraConfig, TrainableTokensConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from ludic_gym.errors import ConfigError
from ludic_train.models.adapters import check_served, merged_params
from ludic_train.models.checkpoint_names import checkpoint_params, model_params

IDS = torch.arange(2, 26).view(2, 12)


def qwen2(*, tied=False):
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.1}
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**sizes, **heads, tie_word_embeddings=tied)).eval()


def gpt2():
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.1)).eval()


def adapted(model, **settings):
    """The model with an adapter, all that trains in it moved at random."""
    usual = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    with_adapter = get_peft_model(model, LoraConfig(**{**usual, **settings})).eval()
    return moved(with_adapter)


def moved(model, seed=3):
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                param.add_(torch.randn(param.shape, generator=noise) * 0.2)
    return model


@torch.no_grad()
def logprobs(model):
    return model(input_ids=IDS).logits.log_softmax(-1)


def served(model, base):
    """Log-probs of a server that began with `base` and gets what the model sends."""
    sent = dict(checkpoint_params(model.named_parameters(), model))
    found = base.load_state_dict(model_params(base, sent), strict=False)
    base.tie_weights()
    assert not found.unexpected_keys
    return logprobs(base)


CASES = {
    "all linear layers": (qwen2, {}),
    "tied embeddings": (lambda: qwen2(tied=True), {}),
    "rows of tokens, tied": (lambda: qwen2(tied=True), {"trainable_token_indices": [5, 6]}),
    "rows of tokens": (qwen2, {"trainable_token_indices": {"embed_tokens": [5, 6]}}),
    "biases of the base": (qwen2, {"bias": "lora_only"}),
    "all biases": (qwen2, {"bias": "all"}),
    "a bias of the adapter": (qwen2, {"target_modules": ["q_proj"], "lora_bias": True}),
    "a whole head": (qwen2, {"modules_to_save": ["lm_head"]}),
    "head and embeddings": (qwen2, {"target_modules": ["embed_tokens", "lm_head", "v_proj"]}),
    "rank-stabilised": (qwen2, {"use_rslora": True}),
    "other ranks by layer": (
        qwen2,
        {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 1}},
    ),
    # Square ones too, whose sides could be taken for one another.
    "layers that lie the other way": (gpt2, {"fan_in_fan_out": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_sent_computes_what_the_model_does(name):
    base, settings = CASES[name]
    model = adapted(base(), **settings)
    check_served(model)
    wanted = logprobs(model)
    assert (wanted - logprobs(base())).abs().max() > 0.05
    torch.testing.assert_close(served(model, base()), wanted, atol=2e-5, rtol=0)


def test_of_two_adapters_the_active_one_is_sent():
    model = adapted(qwen2())
    model.add_adapter("ref", LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    model.set_adapter("ref")
    moved(model, seed=4)
    for name in ("default", "ref"):
        model.set_adapter(name)
        torch.testing.assert_close(served(model, qwen2()), logprobs(model), atol=2e-5, rtol=0)


def test_two_active_adapters_are_refused():
    model = adapted(qwen2())
    model.add_adapter("ref", LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    model.base_model.set_adapter(["default", "ref"])
    with pytest.raises(ConfigError, match=r"\['default', 'ref'\] are active"):
        check_served(model)


def test_a_param_that_trains_and_is_not_sent_is_named():
    model = adapted(qwen2())
    model.add_adapter("ref", LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    for name, param in model.named_parameters():
        if ".ref." in name:
            param.requires_grad_(True)
    with pytest.raises(ConfigError, match=r"lora_A.ref.weight trains.*active adapter is 'default'"):
        check_served(model)


# peft's own advice.
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`")
@pytest.mark.parametrize("targets", [["lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"]])
def test_an_adapter_of_one_side_of_a_tied_matrix_is_refused(targets):
    with pytest.raises(ConfigError, match="one matrix for input embeddings and output head"):
        check_served(adapted(qwen2(tied=True), target_modules=targets))


def test_kinds_of_adapters_that_no_sum_gives_are_refused():
    with pytest.raises(ConfigError, match="of the kind DoraLinearVariant"):
        check_served(adapted(qwen2(), use_dora=True))


def test_rows_of_tokens_alone_are_served():
    model = moved(get_peft_model(qwen2(), TrainableTokensConfig(token_indices=[3, 7])).eval())
    torch.testing.assert_close(served(model, qwen2()), logprobs(model), atol=1e-6, rtol=0)


def test_the_model_stays_as_it_was():
    model = adapted(qwen2())
    before = copy.deepcopy(dict(model.named_parameters()))
    dict(merged_params(model.named_parameters(), model))
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_experts_are_merged_on_the_way_to_their_file_names():
    targets = {"target_modules": ["q_proj"], "target_parameters": ["experts.down_proj"]}
    model = adapted(made("qwen3_moe"), **targets)
    torch.testing.assert_close(served(model, made("qwen3_moe")), logprobs(model), atol=2e-5, rtol=0)
