import asyncio
import random
from dataclasses import replace

import pytest
import torch
from chat_families import family_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.types import Sampling
from ludic_train.engine.batch import (
    FREE_PADDING,
    MAX_PADDING,
    Engine,
    Request,
    prefills,
    stop_ids,
)
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_profile import chat_profile
from ludic_train.models.load import load_model, save_model
from ludic_train.models.tiny import make_tiny_model

EOS = 2


def request(prompt, **sampling):
    return Request(prompt_ids=tuple(prompt), sampling=Sampling(**{"seed": 0, **sampling}))


def ragged_requests(count, **sampling):
    rng = random.Random(7)
    return [
        request(
            [rng.randrange(3, 300) for _ in range(rng.randrange(1, 60))],
            seed=seed,
            max_tokens=rng.randrange(1, 20),
            **sampling,
        )
        for seed in range(count)
    ]


def run(engine, requests):
    for each in requests:
        engine.add(each)
    ended = {}
    while not engine.is_idle:
        ended.update(engine.advance())
    return [ended[each] for each in requests]


def reference_logprobs(logits, completion):
    """Log-probs of the sampled ids, from the logits of transformers' full forward."""
    sampling, first = completion.sampling, len(completion.prompt_ids) - 1
    scaled = logits[first:-1] / (sampling.temperature or 1.0)
    logprobs = scaled.log_softmax(-1)
    if sampling.temperature and sampling.top_p < 1:
        for row in logprobs:
            mass, order = 0.0, row.argsort(descending=True)
            for token in order.tolist():
                outside = mass >= sampling.top_p
                mass += row[token].exp().item()
                if outside:
                    row[token] = -torch.inf
        logprobs = logprobs.log_softmax(-1)
    ids = torch.tensor(completion.completion_ids)
    return logprobs.gather(1, ids[:, None])[:, 0]


def assert_logprobs_are_those_of_the_full_forward(model, completions, reference_logits):
    for completion in completions:
        ids = [*completion.prompt_ids, *completion.completion_ids]
        expected = reference_logprobs(reference_logits(model, ids), completion)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-5, rtol=0)


@pytest.mark.long
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.7},
        {"top_p": 0.9},
        {"temperature": 0.7, "top_p": 0.5},
        {"temperature": 0},
    ],
)
@pytest.mark.parametrize(("family", "tied"), [("qwen3", True), ("qwen2", False), ("llama", True)])
def test_logprobs_are_those_of_the_full_forward(
    family, tied, sampling, make_model, tokenizer, reference_logits
):
    model = make_model(family, tied)
    engine = Engine(model, tokenizer, max_batch_size=7)
    completions = run(engine, ragged_requests(20, **sampling))
    assert_logprobs_are_those_of_the_full_forward(model, completions, reference_logits)


def test_logprobs_of_a_model_with_adapters_are_those_of_its_full_forward(
    make_model, tokenizer, reference_logits, tmp_path
):
    save_model(make_model("qwen3", vocab_size=len(tokenizer)), tokenizer, tmp_path)
    model, _ = load_model(tmp_path, lora_rank=4)
    with torch.no_grad():
        for param in model.parameters():
            if param.requires_grad:
                param.normal_(std=0.1)
    model.train()
    completions = run(Engine(model, tokenizer, max_batch_size=8), ragged_requests(12))
    assert_logprobs_are_those_of_the_full_forward(model, completions, reference_logits)


@pytest.mark.long
def test_completions_end_at_the_stop_token_or_at_max_tokens(make_model, tokenizer):
    engine = Engine(make_model("qwen3"), tokenizer, max_batch_size=64)
    completions = run(engine, [request([5], seed=i, max_tokens=60) for i in range(200)])
    assert {c.finish_reason for c in completions} == {"stop", "length"}
    for completion in completions:
        stopped = completion.finish_reason == "stop"
        assert (completion.completion_ids[-1] == EOS) == stopped
        assert EOS not in completion.completion_ids[:-1]
        assert stopped or len(completion.completion_ids) == 60
        kept = completion.completion_ids[: -1 if stopped else None]
        assert completion.text == tokenizer.decode(kept, skip_special_tokens=True)
        assert len(completion.logprobs) == len(completion.completion_ids)


def test_greedy_takes_the_likeliest_token_every_time(make_model, tokenizer, reference_logits):
    model = make_model("llama")
    engine = Engine(model, tokenizer, max_batch_size=4)
    for completion in run(engine, ragged_requests(6, temperature=0)):
        ids = [*completion.prompt_ids, *completion.completion_ids]
        likeliest = reference_logits(model, ids).argmax(-1).tolist()
        assert tuple(likeliest[len(completion.prompt_ids) - 1 : -1]) == completion.completion_ids


def test_the_same_seed_gives_the_same_text_in_any_company(make_model, tokenizer):
    model = make_model("qwen3")
    requests = ragged_requests(30)
    together = run(Engine(model, tokenizer, max_batch_size=32), requests)
    few = run(Engine(model, tokenizer, max_batch_size=3), requests[::-1])[::-1]
    alone = [run(Engine(model, tokenizer, max_batch_size=1), [each])[0] for each in requests]
    for one, other, third in zip(together, few, alone, strict=True):
        assert one.completion_ids == other.completion_ids == third.completion_ids
        assert one.logprobs == pytest.approx(third.logprobs, abs=1e-5)


def test_a_stop_string_cuts_the_text_and_keeps_the_ids_that_formed_it(make_model, tokenizer):
    engine = Engine(make_model("qwen3"), tokenizer, max_batch_size=1)
    plain = run(engine, [request([5], seed=3, max_tokens=40)])[0]
    middle = len(plain.text) // 2
    stop = plain.text[middle : middle + 2]
    cut = run(engine, [request([5], seed=3, max_tokens=40, stop=("never there", stop))])[0]
    assert cut.finish_reason == "stop"
    assert cut.text == plain.text[: plain.text.index(stop)]
    assert cut.completion_ids == plain.completion_ids[: len(cut.completion_ids)]
    assert stop in tokenizer.decode(cut.completion_ids, skip_special_tokens=True)
    assert stop not in tokenizer.decode(cut.completion_ids[:-1], skip_special_tokens=True)


def test_the_earliest_of_several_stop_strings_cuts(make_model, tokenizer):
    engine = Engine(make_model("qwen3"), tokenizer, max_batch_size=1)
    text = run(engine, [request([5], seed=3, max_tokens=1)])[0].text
    assert len(text) == 1
    cut = run(engine, [request([5], seed=3, max_tokens=9, stop=("zzz", text, text))])[0]
    assert (cut.text, cut.finish_reason, len(cut.completion_ids)) == ("", "stop", 1)


def test_requests_join_and_leave_a_running_batch(make_model, tokenizer):
    engine = Engine(make_model("qwen3"), tokenizer, max_batch_size=8)
    early, late = ragged_requests(10)[:5], ragged_requests(10)[5:]
    expected = run(Engine(make_model("qwen3"), tokenizer, max_batch_size=1), early + late)
    for each in early:
        engine.add(each)
    ended = dict(engine.advance())
    for each in late:
        engine.add(each)
    while not engine.is_idle:
        ended.update(engine.advance())
    for each, completion in zip(early + late, expected, strict=True):
        assert ended[each].completion_ids == completion.completion_ids


@pytest.mark.parametrize("old", range(1, 20))
def test_tokens_after_a_change_of_the_params_have_the_new_version(make_model, tokenizer, old):
    engine = Engine(make_model("qwen3"), tokenizer, max_batch_size=2)
    engine._is_stop[:] = False
    engine.add(replace(request([5], max_tokens=20), policy_version=3))
    for _ in range(old):
        assert engine.advance(lambda: True) == []
    engine.renew(4)
    ((_, completion),) = engine.advance()
    assert completion.versions == (3,) * old + (4,) * (20 - old)


def test_training_mode_is_off_while_sampling_and_back_after(make_model, tokenizer):
    model = make_model("qwen3")
    model.train()
    model.model.layers[1].mlp.eval()
    seen = []
    model.model.embed_tokens.register_forward_pre_hook(
        lambda module, _: seen.append(module.training)
    )
    run(Engine(model, tokenizer, max_batch_size=2), [request([5], max_tokens=3)])
    assert set(seen) == {False}
    assert model.training
    assert model.model.layers[0].mlp.training
    assert not model.model.layers[1].mlp.training


def test_sampling_between_two_updates_does_not_disturb_training(make_model, tokenizer):
    model = make_model("qwen3")
    engine = Engine(model, tokenizer, max_batch_size=2)
    for _ in range(2):
        run(engine, [request([5], max_tokens=3)])
        model(torch.tensor([[5, 6, 7]])).logits.square().mean().backward()
    assert all(param.grad is not None for param in model.parameters())
    assert not any(param.is_inference() for param in model.parameters())


def test_every_stop_token_that_the_model_is_made_with_counts(make_model, tokenizer):
    model = make_model("qwen3")
    model.generation_config.eos_token_id = [7, 8]
    assert stop_ids(model, tokenizer) == {tokenizer.eos_token_id, 7, 8}
    model.generation_config.eos_token_id = None
    assert stop_ids(model, tokenizer) == {tokenizer.eos_token_id}


@pytest.mark.parametrize("family", ["gemma", "qwen base", "llama 3", "phi 3", "glm 4", "gpt-oss"])
def test_sampling_stops_where_the_template_ends_a_turn(family):
    tokenizer = family_tokenizer(family)
    model = make_tiny_model(tokenizer, hidden_size=32, num_layers=1)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    end = chat_profile(tokenizer).turn_end[-1]
    model.lm_head = torch.nn.Linear(32, len(tokenizer))
    with torch.no_grad():
        # Its reply is the end of the turn, whatever was asked.
        model.lm_head.weight.zero_()
        model.lm_head.bias.zero_()[end] = 50.0
    dialog = [{"role": "user", "content": "2 + 3 = ?"}]
    reply = asyncio.run(LocalChatClient(model, tokenizer).complete(dialog, Sampling(max_tokens=8)))
    assert reply.completion_ids == (end,)
    assert (reply.text, reply.finish_reason) == ("", "stop")


def step_by_step(engine, requests, move):
    """Completions of the requests; `move` is called once, in the middle of them."""
    for each in requests:
        engine.add(each)
    ended = dict(engine.advance(lambda: True))
    move()
    while not engine.is_idle:
        ended.update(engine.advance())
    return [ended[each] for each in requests]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("in_flight", [False, True])
def test_the_engine_follows_a_model_to_another_device(model, tokenizer, in_flight):
    requests = ragged_requests(4, temperature=0.0)
    engine = Engine(model, tokenizer, max_batch_size=4)
    if not in_flight:
        run(engine, requests)
        model.to("cuda")
    found = step_by_step(engine, requests, lambda: model.to("cuda"))
    expected = run(Engine(model.cpu(), tokenizer, max_batch_size=4), requests)
    for one, other in zip(found, expected, strict=True):
        assert one.completion_ids == other.completion_ids


def test_equal_prompts_are_read_once_for_all_who_share_them():
    first, other, second = request([1, 2]), request([3, 4]), request([1, 2])
    (prefill,) = prefills([first, other, second])
    assert prefill.prompts == ((1, 2), (3, 4))
    assert [list(requests) for requests in prefill.sharers] == [[first, second], [other]]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=300), max_size=40))
def test_every_request_is_read_exactly_once_and_padding_stays_bounded(prompts):
    requests = [request(prompt) for prompt in prompts]
    read = []
    for prefill in prefills(requests):
        sizes = [len(prompt) for prompt in prefill.prompts]
        padded = max(sizes) * len(sizes)
        assert padded - sum(sizes) <= max(FREE_PADDING, MAX_PADDING * padded)
        for prompt, sharers in zip(prefill.prompts, prefill.sharers, strict=True):
            assert all(sharer.prompt_ids == prompt for sharer in sharers)
            read += sharers
    assert sorted(map(id, read)) == sorted(map(id, requests))
