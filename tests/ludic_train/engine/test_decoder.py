import random

import numpy as np
import pytest
import torch
from transformers import GPT2Config

from ludic_train.engine import decoder as decoder_module
from ludic_train.engine.decoder import Decoder, is_known
from ludic_train.models.load import LoRA, load_model, save_model

LENGTHS = (40, 9, 17, 5)
PROMPTS = (25, 9, 8, 3)


def sequences(lengths=LENGTHS, vocab=300):
    rng = random.Random(0)
    return [[rng.randrange(vocab) for _ in range(length)] for length in lengths]


def worst_error(model, reference_logits, copies=(1, 2, 1, 2)):
    """Greatest difference over a ragged prefill and 15 teacher-forced steps of six rows."""
    texts, decoder = sequences(vocab=model.config.vocab_size), Decoder(model)
    expected = [reference_logits(model, text) for text in texts]
    owners = [i for i, n in enumerate(copies) for _ in range(n)]
    lengths = [PROMPTS[i] for i in owners]
    with torch.inference_mode():
        decoder.refresh()
        decoder.reserve(len(owners), max(lengths))
        prompts = [text[:size] for text, size in zip(texts, PROMPTS, strict=True)]
        logits = decoder.prefill(prompts, [0] * len(prompts), first_row=0)[owners]
        decoder.cache.spread(0, copies, max(PROMPTS))
        errors = []
        for _ in range(15):
            errors += [
                (logits[row] - expected[i][lengths[row] - 1]).abs().max().item()
                for row, i in enumerate(owners)
                if lengths[row] <= len(texts[i])
            ]
            newest = [(texts[i] + [0] * 15)[lengths[row]] for row, i in enumerate(owners)]
            decoder.reserve(len(owners), max(lengths) + 1)
            logits = decoder.decode(np.array(newest), np.array(lengths))
            lengths = [length + 1 for length in lengths]
    return max(errors)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", ["qwen3", "qwen2", "mistral", "llama", "llama3"])
def test_ragged_rows_get_the_logits_of_the_full_forward(family, tied, make_model, reference_logits):
    assert worst_error(make_model(family, tied), reference_logits) < 1e-5


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_products_of_both_libraries_are_exact(family, make_model, reference_logits, monkeypatch):
    monkeypatch.setattr(decoder_module, "DNN_PRODUCTS", 0)
    assert worst_error(make_model(family), reference_logits) < 1e-5


@pytest.mark.parametrize("start", [0, 100])
def test_long_prompts_are_exact(start, make_model, reference_logits):
    model, texts = make_model("qwen3"), sequences((158, 131))
    decoder = Decoder(model)
    with torch.inference_mode():
        decoder.refresh()
        decoder.reserve(2, 158)
        if start:
            decoder.prefill([text[:start] for text in texts], [0, 0], 0)
        logits = decoder.prefill(texts, [start, start], 0)
    expected = torch.stack([reference_logits(model, text)[-1] for text in texts])
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_another_activation_is_the_models_own(make_model, reference_logits):
    model = make_model("llama", hidden_act="gelu")
    assert worst_error(model, reference_logits) < 1e-5


def test_half_precision_is_as_exact_as_it_can_be(make_model, reference_logits):
    model = make_model("qwen3").bfloat16()
    # bfloat16 has 8 bits: logits of up to 4 are apart by up to 0.016 each time one is rounded.
    assert worst_error(model, reference_logits) < 0.15


def test_a_model_of_one_layer_and_unshared_keys_is_exact(make_model, reference_logits):
    model = make_model("qwen3", num_hidden_layers=1, num_key_value_heads=4)
    assert worst_error(model, reference_logits) < 1e-5


def test_norms_of_another_type_or_eps_are_the_models_own(make_model, reference_logits):
    model = make_model("qwen3")
    for norm in (model.model.layers[0].self_attn.q_norm, model.model.layers[0].self_attn.k_norm):
        norm.bfloat16()
    # Their weights take in the scale of the scores, in bfloat16.
    assert worst_error(model, reference_logits) < 0.02
    model = make_model("llama")
    model.model.layers[1].post_attention_layernorm.variance_epsilon = 0.5
    assert worst_error(model, reference_logits) < 1e-5
    model.model.layers[0].input_layernorm.variance_epsilon = 0.5
    assert worst_error(model, reference_logits) < 1e-5


def test_adapters_take_part(make_model, tokenizer, reference_logits, tmp_path):
    save_model(make_model("qwen3", vocab_size=len(tokenizer)), tokenizer, tmp_path)
    model, _ = load_model(tmp_path, lora=LoRA(rank=4))
    plain = reference_logits(model, [5, 6])
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                param.normal_(std=0.1)
    assert not torch.allclose(reference_logits(model, [5, 6]), plain, atol=0.1)
    assert worst_error(model.eval(), reference_logits) < 1e-5


def test_moved_rows_go_on_as_if_they_had_been_there(make_model, reference_logits):
    model, (first, second) = make_model("qwen3"), sequences((6, 4))
    decoder = Decoder(model)
    with torch.inference_mode():
        decoder.refresh()
        decoder.reserve(2, 7)
        decoder.prefill([first, second], [0, 0], 0)
        decoder.cache.move([1], [0], num_slots=4)
        logits = decoder.decode(np.array([9]), np.array([4]))[0]
    expected = reference_logits(model, [*second, 9])[-1]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_a_model_of_another_type_is_refused_until_the_cache_follows(make_model):
    model = make_model("qwen3")
    decoder = Decoder(model)
    with torch.inference_mode():
        decoder.refresh()
        decoder.reserve(1, 32)
        model.bfloat16()
        decoder.refresh()
        with pytest.raises((ValueError, RuntimeError), match=r"dtype|torch\.float32"):
            decoder.prefill([[5, 6]], [0], 0)
        decoder.follow()
        decoder.reserve(1, 32)
        assert decoder.prefill([[5, 6]], [0], 0).isfinite().all()
    model.float()


def test_a_sliding_window_bounds_the_positions(make_model):
    assert Decoder(make_model("mistral")).max_positions == 200
    assert Decoder(make_model("llama")).max_positions == 256


def test_rotations_that_depend_on_the_length_are_left_to_the_model_itself(make_model):
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert not is_known(make_model("llama", rope_parameters=rope).config)
    assert is_known(make_model("llama").config)
    assert not is_known(GPT2Config())
