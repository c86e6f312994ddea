"""Completions do not depend on what the engine keeps; what it keeps depends on the params."""

import asyncio
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model

from ludic_gym.types import Sampling
from ludic_train.engine.batch import Engine, Request
from ludic_train.engine.cache import BLOCK
from ludic_train.engine.client import LocalChatClient
from ludic_train.engine.decoder import Decoder
from ludic_train.models.exact import make_exact

# Workloads of a property: three, and thirty-one in a thorough run.
WORKLOADS = settings(max_examples=max(1, settings.default.max_examples // 16))
# Of the small models: 3 layers * 2 kv heads * 16 or 24 numbers * 4 bytes, keys and values.
ROOM = 24 * 1152 * BLOCK


def workload(seed, rounds=4):
    """Rounds of requests whose prompts begin with parts of earlier ones; the same for a seed."""
    rng, texts, made = random.Random(seed), [()], []
    for _ in range(rounds):
        requests = []
        for _ in range(rng.randrange(1, 7)):
            known = rng.choice(texts)
            new = [rng.randrange(3, 300) for _ in range(rng.choice((1, 15, 40, 70)))]
            prompt = (*known[: rng.randrange(len(known) + 1)], *new)[:190]
            texts.append(prompt)
            for _ in range(rng.choice((1, 1, 3))):
                sampling = Sampling(seed=rng.getrandbits(32), max_tokens=rng.choice((1, 4, 30)))
                requests.append(Request(prompt_ids=prompt, sampling=sampling, policy_version=0))
        made.append(requests)
    return made


def completions(engine, rounds):
    """Of each request, whose round joins while the one before may still run."""
    ended = {}
    for requests in rounds:
        for each in requests:
            engine.add(each)
        ended.update(engine.advance())
    while not engine.is_idle:
        ended.update(engine.advance())
    return [ended[each] for requests in rounds for each in requests]


def one(engine, prompt, version=0, **sampling):
    given = Sampling(**{"seed": 0, "max_tokens": 8, **sampling})
    request = Request(prompt_ids=tuple(prompt), sampling=given, policy_version=version)
    return completions(engine, [[request]])[0]


def engines(model, tokenizer, room, max_batch_size=5):
    """One with room for prefixes, and one without."""
    return (
        Engine(model, tokenizer, max_batch_size=max_batch_size, prefix_cache_bytes=room)
        for room in (room, 0)
    )


@pytest.mark.long
@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.slow)])
@WORKLOADS
@given(seed=st.integers(0, 10**6), room=st.sampled_from([ROOM // 4, ROOM, 10**8]))
def test_completions_are_those_without_a_cache(family, seed, room, make_model, tokenizer):
    cached, plain = engines(make_model(family), tokenizer, room)
    rounds = workload(seed)
    for found, expected in zip(
        completions(cached, rounds), completions(plain, rounds), strict=True
    ):
        assert found.completion_ids == expected.completion_ids
        np.testing.assert_allclose(found.logprobs, expected.logprobs, atol=1e-5, rtol=0)
    assert cached.prefixes.num_bytes <= room


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", pytest.param("llama", marks=pytest.mark.slow)])
@WORKLOADS
@given(seed=st.integers(0, 10**6), room=st.sampled_from([ROOM // 4, 10**8]))
def test_an_exact_model_gives_equal_bits(family, seed, room, make_model, tokenizer):
    model, threads = make_model(family), torch.get_num_threads()
    make_exact(model)
    try:
        cached, plain = engines(model, tokenizer, room)
        rounds = workload(seed)
        assert completions(cached, rounds) == completions(plain, rounds)
    finally:
        torch.set_num_threads(threads)


def test_random_workloads_find_prefixes(make_model, tokenizer):
    engine, _ = engines(make_model("llama"), tokenizer, 10**8)
    completions(engine, workload(0, rounds=8))
    assert 0.2 < engine.prefixes.num_found / engine.prefixes.num_queried < 1


@pytest.mark.parametrize(
    "family", ["qwen3", "qwen2", "mistral", "llama", "mixtral", "qwen3_moe", "llama3"]
)
def test_texts_that_are_extended_get_the_logits_of_the_full_forward(
    family, make_model, reference_logits
):
    model, rng = make_model(family), random.Random(0)
    texts = [[rng.randrange(300) for _ in range(size)] for size in (90, 41, 77, 12)]
    starts, decoder = (64, 40, 3, 0), Decoder(model)
    with torch.inference_mode():
        decoder.refresh()
        decoder.reserve(5, 90)
        for row, (text, start) in enumerate(zip(texts, starts, strict=True), 1):
            if start:
                decoder.prefill([text[:start]], [0], row)
        logits = decoder.prefill(texts, starts, 1)
        steps = decoder.reserve(5, 91) or decoder.decode(
            np.array([5] * 5), np.array([1, *map(len, texts)])
        )
    for i, text in enumerate(texts):
        expected = reference_logits(model, [*text, 5])
        torch.testing.assert_close(logits[i], expected[-2], atol=1e-5, rtol=0)
        torch.testing.assert_close(steps[i + 1], expected[-1], atol=1e-5, rtol=0)


def test_a_turn_reads_what_is_new_since_the_turn_before(make_model, tokenizer):
    engine, _ = engines(make_model("llama"), tokenizer, 10**8)
    first = one(engine, range(3, 80))
    prompt = (*first.prompt_ids, *first.completion_ids, *range(100, 130))
    before = engine.prefixes.num_found
    one(engine, prompt)
    # The last token of a completion was sampled, and never read.
    kept = len(first.prompt_ids) + len(first.completion_ids) - 1
    assert engine.prefixes.num_found - before == kept // BLOCK * BLOCK


def test_prompts_of_one_admission_share_what_they_begin_with(make_model, tokenizer):
    engine, _ = engines(make_model("llama"), tokenizer, 10**8, max_batch_size=8)
    prompts = [(*range(3, 103), i) for i in range(8)]
    requests = [Request(prompt_ids=each, sampling=Sampling(seed=0)) for each in prompts]
    completions(engine, [requests])
    # 100 tokens are six blocks and four tokens.
    assert engine.prefixes.num_found == 8 * 96


def test_each_member_of_a_group_continues_its_cached_prompt(make_model, tokenizer):
    cached, plain = engines(make_model("llama"), tokenizer, 10**8, max_batch_size=8)
    one(cached, range(3, 103))
    group = [
        Request(
            prompt_ids=(*range(3, 103), end),
            sampling=Sampling(seed=seed, max_tokens=12),
            policy_version=0,
        )
        for end in (7, 8)
        for seed in range(3)
    ]
    found, expected = completions(cached, [group]), completions(plain, [group])
    assert [each.completion_ids for each in found] == [each.completion_ids for each in expected]
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(each.logprobs, other.logprobs, atol=1e-5, rtol=0)
    assert cached.prefixes.num_found == 2 * 96


def with_an_optimizer(model):
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.5)


def past_the_counters_of_torch(model):
    model.model.embed_tokens.weight.data[7, 0] += 0.5


def by_another_tensor(model):
    model.model.layers[1].self_attn.v_proj.weight.data = torch.randn(32, 64)


CHANGES = [with_an_optimizer, past_the_counters_of_torch, by_another_tensor]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_params_drops_prefixes(change, make_model, tokenizer):
    model = make_model("llama")
    engine, plain = engines(model, tokenizer, 10**8)
    before = one(engine, range(3, 103), temperature=0)
    change(model)
    after = one(engine, range(3, 103), temperature=0)
    assert engine.prefixes.num_found == 0
    assert after == one(plain, range(3, 103), temperature=0)
    assert after.logprobs != before.logprobs


def test_a_version_of_equal_params_drops_prefixes_too(make_model, tokenizer):
    engine, _ = engines(make_model("llama"), tokenizer, 10**8)
    for version in (0, 1):
        one(engine, range(3, 103), version)
        assert engine.prefixes.num_found == 0
    one(engine, range(3, 103), 1)
    assert engine.prefixes.num_found == 96


def test_adapters_that_are_switched_off_drop_prefixes(make_model, tokenizer):
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    model = get_peft_model(make_model("llama"), config).eval()
    engine, plain = engines(model, tokenizer, 10**8)
    one(engine, range(3, 103))
    with model.disable_adapter():
        assert one(engine, range(3, 103)) == one(plain, range(3, 103))
    assert engine.prefixes.num_found == 0


def test_prefixes_are_off_where_experts_are_recorded(make_model, tokenizer):
    model = make_model("mixtral")
    engine = Engine(
        model, tokenizer, max_batch_size=2, routed_experts=True, prefix_cache_bytes=10**8
    )
    for _ in range(2):
        assert one(engine, range(3, 103)).routed_experts is not None
    assert (engine.prefixes.max_bytes, engine.prefixes.num_bytes) == (0, 0)


async def test_the_client_repeats_bits_after_it_forgot(make_model, tokenizer):
    client = LocalChatClient(make_model("llama"), tokenizer, max_batch_size=8)

    async def sampled():
        return await asyncio.gather(
            *(client.continued(range(3, 103 + i), Sampling(seed=i, max_tokens=4)) for i in range(3))
        )

    first, counts = await sampled(), client.prefix_tokens
    await client.forget_prefixes()
    assert await sampled() == first
    assert client.prefix_tokens == tuple(2 * count for count in counts)
    await sampled()
    # Of 100, 101 and 102 tokens, all but the rest after six blocks.
    assert client.prefix_tokens[1] == 2 * counts[1] + 3 * 96
