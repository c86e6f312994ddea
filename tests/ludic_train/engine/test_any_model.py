"""Sampling by a model's own forward pass, over the architectures of transformers."""

import random

import numpy as np
import pytest
import torch
from model_types import made
from transformers import DynamicCache, MambaConfig
from transformers.cache_utils import DynamicSlidingWindowLayer, LinearAttentionLayer

from ludic_gym.types import Sampling
from ludic_train.engine.any_model import AnyDecoder, Rows, TextDecoder, longest_text
from ludic_train.engine.batch import Engine, Request
from ludic_train.errors import UnsupportedModel
from ludic_train.models.head import action_logprobs
from ludic_train.models.load import LoRA, with_new_lora

CACHED = ["gemma2", "gemma3_text", "phi", "gpt_oss", "qwen3_5_text", "lfm2", "mamba", "llama4_text"]
MORE = [
    "gemma", "phi3", "olmo2", "granite", "glm", "cohere2", "qwen3_next", "jamba", "bamba",
    "falcon_h1", "deepseek_v3", "gemma4_text", "gpt2", "bloom",
]  # fmt: skip
# Those whose steps with a cache are not what the model computes at once, or whose cache is unknown.
UNCACHED = ["nemotron_h", "recurrent_gemma"]


def requests(**sampling):
    """Ragged ones, of which two share a prompt; longer than the windows of the models."""
    rng = random.Random(0)
    prompts = [tuple(rng.randint(3, 127) for _ in range(rng.randint(1, 40))) for _ in range(8)]
    prompts[3] = prompts[4]
    sizes = [rng.randint(2, 20) for _ in prompts]
    return [
        Request(
            prompt_ids=prompt,
            sampling=Sampling(seed=i, max_tokens=size, **sampling),
            policy_version=0,
        )
        for i, (prompt, size) in enumerate(zip(prompts, sizes, strict=True))
    ]


def sampled(engine, asked):
    """The completions, in the order of their requests."""
    for request in asked:
        engine.add(request)
    found = {}
    while not engine.is_idle:
        found |= dict(engine.advance())
    return [found[request] for request in asked]


def off(model, completions):
    """The greatest difference to the trainer's log-probs, in nats."""
    worst = 0.0
    for each in completions:
        size = len(each.completion_ids)
        row = torch.zeros(size, dtype=torch.long)
        column = torch.arange(size) + len(each.prompt_ids)
        ids = torch.tensor([[*each.prompt_ids, *each.completion_ids]])
        with torch.no_grad():
            own = action_logprobs(model, ids, row, column, torch.ones(size)).logprobs
        worst = max(worst, float((own - torch.tensor(each.logprobs)).abs().max()))
    return worst


@pytest.fixture
def engine_of(tokenizer):
    return lambda model, size=5: Engine(model, tokenizer, max_batch_size=size)


@pytest.mark.parametrize(
    "name", [*CACHED, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)]
)
def test_log_probs_of_rows_that_join_and_leave_are_the_trainers(name, engine_of):
    model = made(name)
    with torch.no_grad():
        for param in model.parameters():
            # States of larger params multiply rounding: the model alone is then 1e-5 off float64.
            param.mul_(0.5)
    engine = engine_of(model)
    assert isinstance(engine._decoder, AnyDecoder)
    assert off(model, sampled(engine, requests())) < 1e-5


@pytest.mark.parametrize("name", UNCACHED)
def test_a_model_without_an_exact_cache_reads_whole_texts_and_says_so(name, engine_of, caplog):
    model = made(name)
    engine = engine_of(model)
    assert isinstance(engine._decoder, TextDecoder)
    assert "is sampled without a cache, which takes long: its " in caplog.text
    assert off(model, sampled(engine, requests())) < 2e-5


@pytest.mark.parametrize("name", ["gemma2", "qwen3_5_text", "recurrent_gemma"])
def test_a_seed_gives_the_same_text_in_any_batch(name, engine_of):
    model = made(name)
    alone, together = (
        [each.completion_ids for each in sampled(engine_of(model, size), requests(top_p=0.9))]
        for size in (1, 8)
    )
    assert alone == together


@pytest.mark.parametrize("name", ["gemma2", "lfm2", "recurrent_gemma"])
def test_params_that_change_between_two_tokens_count_from_the_next_one_on(name, engine_of):
    model = made(name)
    engine = engine_of(model, 3)
    for request in requests(temperature=0.0)[2:5]:
        engine.add(request)
    found = {}
    for _ in range(4):
        found |= dict(engine.advance(lambda: True))
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(1.1)
    engine.renew(version=7)
    while not engine.is_idle:
        found |= dict(engine.advance())
    # One may have ended before.
    changed = [each for each in found.values() if each.versions]
    assert changed
    for each in changed:
        later = np.array(each.versions) == 7
        ids = torch.tensor([[*each.prompt_ids, *each.completion_ids]])
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0, len(each.prompt_ids) - 1 : -1]
        logprobs, own = torch.tensor(each.logprobs), logits.log_softmax(-1).amax(-1)
        torch.testing.assert_close(logprobs[later], own[later], atol=2e-5, rtol=0)
        assert not torch.allclose(logprobs[~later], own[~later], atol=1e-3)


def test_adapters_take_part_and_gradients_flow_after_sampling(engine_of):
    model = with_new_lora(made("gemma3_text"), LoRA(rank=2))
    with torch.no_grad():
        for name, param in model.named_parameters():
            if "lora_B" in name:
                param.normal_(0, 0.3)
    engine = engine_of(model)
    found = sampled(engine, requests())
    assert off(model, found) < 1e-5
    with model.disable_adapter():
        assert off(model, found) > 0.1
    model(torch.tensor([[5, 6, 7]])).logits.sum().backward()
    assert all(param.grad is not None for name, param in model.named_parameters() if "lora" in name)


def test_rows_in_flight_are_read_anew_when_the_model_takes_another_type(engine_of):
    model = made("gemma2")
    engine = engine_of(model, 2)
    for request in (asked := requests(temperature=0.0)[:2]):
        engine.add(request)
    engine.advance(lambda: True)
    model.double()
    found = {}
    while not engine.is_idle:
        found |= dict(engine.advance())
    assert engine.cached_keys.dtype == torch.float64
    assert off(model, [found[request] for request in asked]) < 1e-5


def test_experts_are_recorded_of_known_families_alone(tokenizer):
    with pytest.raises(UnsupportedModel, match=r"records experts of llama, .* not of 'olmoe'"):
        Engine(made("olmoe"), tokenizer, max_batch_size=2, routed_experts=True)


def test_texts_end_where_all_positions_would_be_encoded_in_another_way():
    config = made("phi3").config
    assert longest_text(config) == 128
    config.rope_parameters = {"rope_type": "longrope", "original_max_position_embeddings": 32}
    assert longest_text(config) == 32
    assert longest_text(MambaConfig()) == 2**20


def cache_of(first_token, tokens, window):
    """One row whose keys are the numbers of its tokens; a window; and a state, the last of them."""
    numbers = torch.arange(first_token, first_token + tokens).view(1, 1, -1, 1).float()
    cache = DynamicCache()
    cache.update(numbers, numbers + 100, 0)
    cache.layers += [DynamicSlidingWindowLayer(sliding_window=window), LinearAttentionLayer()]
    cache.update(numbers, numbers + 100, 1)
    cache.update_recurrent_state(numbers[:, :, -1], 2)
    return cache


def contents(rows):
    full, window, state = rows.cache.layers
    return full.keys[:, 0, :, 0].tolist(), window.keys[:, 0, :, 0].tolist(), state.recurrent_states


def test_rows_of_a_cache_end_at_the_same_slot():
    rows = Rows(torch.zeros(0))
    rows.join(cache_of(1, tokens=2, window=4), 1, width=2)
    rows.join(cache_of(11, tokens=5, window=4), 1, width=5)
    # A window of 4 keeps the 3 tokens before the next one.
    full, window, states = contents(rows)
    assert full == [[0, 0, 0, 1, 2], [11, 12, 13, 14, 15]]
    assert window == [[0, 1, 2], [13, 14, 15]]
    assert states[0][:, 0, 0].tolist() == [2, 15]
    rows.spread(1, [2], num_slots=5)
    rows.move([2], [0], num_slots=5)
    # The longest row alone, which has no padding; then a shorter one, without that of the longer.
    rows.settle(1)
    assert contents(rows)[0] == [[11, 12, 13, 14, 15]]
    rows.join(cache_of(21, tokens=1, window=4), 1, width=1)
    rows.move([1], [0], num_slots=5)
    rows.settle(1, padding=4)
    full, window, states = contents(rows)
    assert (full, window, states[0][:, 0, 0].tolist()) == ([[21]], [[21]], [21])
    assert rows.cache.layers[1].cumulative_length == 1
    rows.settle(0)
    assert rows.cache is None
