"""Equal samples of the local server and the local client, on every route."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch

from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.clients.vllm import VLLMChatClient, VLLMTokenClient
from ludic_gym.errors import ClientError, PromptTooLong
from ludic_gym.policies.chat import ChatPolicy, ThinkingBudget
from ludic_gym.types import Sampling
from ludic_train.sources.teacher import VLLMTeacher
from ludic_train.types import SAWItem

ASK = [{"role": "user", "content": "What is 12 + 30?"}]
SAMPLINGS = [
    Sampling(seed=5, max_tokens=20),
    Sampling(seed=6, max_tokens=20, temperature=0.7),
    Sampling(seed=7, max_tokens=20, top_p=0.8, temperature=1.3),
    Sampling(seed=7, max_tokens=20, top_k=3, min_p=0.05),
    Sampling(seed=8, max_tokens=20, temperature=0),
    Sampling(seed=9, max_tokens=60, stop=("a", "1"), temperature=2.0),
]
GENERATE, COMPLETE, CHAT = "/inference/v1/generate", "/v1/completions", "/v1/chat/completions"


def tokens_client(server, **kwargs):
    return VLLMTokenClient(server.url, server.render, **kwargs)


def essence(completion):
    return replace(completion, policy_version=None, versions=None)


def chat_client(server):
    return VLLMChatClient(server.url)


@pytest.mark.parametrize("make", [tokens_client, chat_client])
@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_over_http_comes_bit_for_bit_what_comes_in_process(server, make, sampling):
    expected = await server.client.complete(ASK, sampling)
    if make is chat_client:
        # As with vLLM, this route has no sampling masks.
        expected = replace(expected, sampling_mask=None)
    async with make(server) as client:
        assert essence(await client.complete(ASK, sampling)) == essence(expected)


@pytest.mark.parametrize("make", [tokens_client, lambda server: VLLMChatClient(server.url)])
async def test_a_begun_reply_is_continued_over_http(server, make):
    dialog = [*ASK, {"role": "assistant", "content": "The answer"}]
    sampling = Sampling(seed=1, max_tokens=8)
    expected = await server.client.complete(dialog, sampling)
    async with make(server) as client:
        assert essence(await client.complete(dialog, sampling)) == essence(expected)


async def test_sampling_masks_have_vllms_format(server):
    params = {"max_tokens": 3, "logprobs": 0, "seed": 4, "top_k": 4}
    body = {"token_ids": [5, 6], "sampling_params": params}
    async with server.session.post(server.url + GENERATE, json=body) as response:
        (choice,) = (await response.json())["choices"]
    assert [len(mask) for mask in choice["sampling_mask"]] == [4] * len(choice["token_ids"])
    for token, mask in zip(choice["token_ids"], choice["sampling_mask"], strict=True):
        assert token in mask == sorted(mask)
    async with tokens_client(server) as client:
        await client.require_sampling_masks()
        whole = await client.continued([5, 6], Sampling(max_tokens=3, seed=4))
    assert whole.sampling_mask is None


async def test_a_client_of_sampling_masks_sends_each_request_with_a_top_k(server):
    greedy = Sampling(max_tokens=6, temperature=0)
    expected = await server.client.continued([5, 6], greedy)
    async with tokens_client(server, sampling_masks=True) as client:
        found = await client.continued([5, 6], greedy)
    assert found.completion_ids == expected.completion_ids
    assert set(found.logprobs) == {0.0}


async def test_a_plain_client_of_openai_gets_the_text(server):
    sampling = Sampling(seed=3, max_tokens=9)
    async with OpenAIChatClient(server.url + "/v1") as client:
        completion = await client.complete(ASK, sampling)
        assert client.usage.completion_tokens <= 9
    assert completion.text == (await server.client.complete(ASK, sampling)).text
    assert completion.completion_ids is None


@pytest.mark.long
async def test_many_requests_at_once_are_each_what_they_are_alone(server):
    asked = [Sampling(seed=seed, max_tokens=12) for seed in range(40)]
    async with tokens_client(server) as client:
        got = await asyncio.gather(*(client.complete(ASK, sampling) for sampling in asked))
    for completion, sampling in zip(got, asked, strict=True):
        expected = await server.client.complete(ASK, sampling)
        assert completion.completion_ids == expected.completion_ids
        assert completion.logprobs == pytest.approx(expected.logprobs, abs=1e-5)


async def test_without_seeds_no_two_answers_repeat(server):
    async with tokens_client(server) as client:
        calls = (client.complete(ASK, Sampling(max_tokens=20)) for _ in range(10))
        got = await asyncio.gather(*calls)
    assert len({completion.completion_ids for completion in got}) == 10


async def test_a_thought_that_is_cut_off_goes_on_with_its_tokens(server):
    async with tokens_client(server) as client:
        policy = ThinkingBudget(ChatPolicy(client), max_think_tokens=6)
        policy.reset("")
        policy.observe("What is 12 + 30?")
        first, second = (await policy.act(Sampling(seed=2, max_tokens=16))).completions
    assert second.prompt_ids[: len(first.prompt_ids) + 6] == first.prompt_ids + first.completion_ids


async def test_several_choices_have_seeds_that_follow_each_other(server):
    body = {"token_ids": [5, 6, 7], "sampling_params": {"seed": 10, "n": 3, "max_tokens": 8}}
    _, answer = await server.post(GENERATE, body)
    for i, choice in enumerate(answer["choices"]):
        sampling = Sampling(seed=10 + i, max_tokens=8)
        expected = await server.client.continued([5, 6, 7], sampling)
        assert choice["token_ids"] == list(expected.completion_ids)
        assert choice["index"] == i


async def test_the_likeliest_tokens_are_told_with_the_sampled_one(server):
    body = {"prompt": [5, 6, 7], "max_tokens": 3, "seed": 1, "logprobs": 4, "temperature": 0.5}
    _, answer = await server.post(COMPLETE, {**body, "return_tokens_as_token_ids": True})
    (choice,) = answer["choices"]
    told = choice["logprobs"]
    ids = [int(name.removeprefix("token_id:")) for name in told["tokens"]]
    expected = server.logprobs([5, 6, 7], ids, temperature=0.5)
    assert told["token_logprobs"] == pytest.approx(expected.tolist(), abs=1e-5)
    with torch.no_grad():
        logits = server.model(torch.tensor([[5, 6, 7]])).logits[0, -1] / 0.5
    values, best = logits.log_softmax(-1).topk(4)
    first = told["top_logprobs"][0]
    for token, value in zip(best.tolist(), values.tolist(), strict=True):
        assert first[f"token_id:{token}"] == pytest.approx(value, abs=1e-5)
    assert first[told["tokens"][0]] == told["token_logprobs"][0]


async def test_tokens_outside_the_nucleus_are_told_as_impossible_in_numbers(server):
    body = {"prompt": [5, 6], "max_tokens": 1, "logprobs": 20, "top_p": 0.01, "seed": 1}
    _, answer = await server.post(COMPLETE, {**body, "return_tokens_as_token_ids": True})
    (named,) = answer["choices"][0]["logprobs"]["top_logprobs"]
    # One of 20 tokens holds a hundredth of all probability, and so all of the nucleus.
    assert sorted(named.values(), reverse=True)[:2] == [0.0, -9999.0]


async def test_a_chat_tells_as_many_of_the_likeliest_as_it_is_asked_for(server):
    body = {"messages": ASK, "max_tokens": 2, "seed": 1, "logprobs": True, "top_logprobs": 2}
    _, answer = await server.post(CHAT, body)
    content = answer["choices"][0]["logprobs"]["content"]
    assert [len(each["top_logprobs"]) for each in content] == [2] * len(content)
    assert content[0]["top_logprobs"][0]["logprob"] >= content[0]["top_logprobs"][1]["logprob"]


async def test_a_chat_without_a_limit_may_fill_the_model(server):
    _, answer = await server.post(CHAT, {"messages": ASK, "temperature": 9.0, "seed": 4})
    usage = answer["usage"]
    assert 16 < usage["completion_tokens"] <= 256 - usage["prompt_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_text_in_parts_is_one_text(server):
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "12 + 30?"}]
    body = {"max_tokens": 4, "seed": 1, "return_token_ids": True}
    _, whole = await server.post(CHAT, {"messages": ASK, **body})
    _, split = await server.post(CHAT, {"messages": [{"role": "user", "content": parts}], **body})
    assert split["prompt_token_ids"] == whole["prompt_token_ids"]


async def test_a_text_is_completed_as_its_tokens_are(server):
    ids = server.served.tokenizer.encode("The answer is")
    body = {"max_tokens": 5, "seed": 1, "return_token_ids": True}
    (_, by_text), (_, by_ids) = [
        await server.post(COMPLETE, {"prompt": prompt, **body}) for prompt in ("The answer is", ids)
    ]
    assert by_text["choices"] == by_ids["choices"]
    assert by_text["choices"][0]["prompt_token_ids"] == ids


async def test_a_teacher_scores_rows_as_the_model_does(server):
    row = np.array([5, 6, 7, 8, 9], np.int64)
    mask = np.array([False, False, True, True, True])
    item = SAWItem(
        input_ids=row,
        action_mask=mask,
        weight=mask.astype(np.float32),
        behavior_logprobs=np.zeros(5, np.float32),
    )
    async with VLLMTeacher(server.url) as teacher:
        (scored,) = await teacher.logprobs([item])
        (top,) = await teacher.top_tokens([item], 20)
    assert top.ids.shape == (3, 20)
    # Each token that is named has the log-prob that the model gives it as the next one.
    for t, place in enumerate((2, 3, 4)):
        for j in (0, 19):
            (value,) = server.logprobs(row[:place].tolist(), [int(top.ids[t, j])]).tolist()
            assert top.logprobs[t, j] == pytest.approx(value, abs=1e-5)
    assert np.exp(top.logprobs).sum(1) == pytest.approx(1, abs=1e-5)
    expected = server.logprobs([5, 6], [7, 8, 9]).numpy()
    assert scored == pytest.approx(np.concatenate(([0, 0], expected)), abs=1e-5)


async def test_who_hangs_up_makes_room(server):
    body = {"token_ids": [5], "sampling_params": {"max_tokens": 250, "temperature": 90.0}}
    asking = asyncio.create_task(server.post(GENERATE, body))
    while not server.served.client.in_flight:
        await asyncio.sleep(0)
    asking.cancel()
    while server.served.client.in_flight or server.served.gate.running:
        await asyncio.sleep(0.001)
    assert server.served.counts.completions == 0


async def test_what_was_done_is_counted(server):
    body = {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 4, "n": 2, "seed": 1}}
    _, answer = await server.post(GENERATE, body)
    tokens = sum(len(choice["token_ids"]) for choice in answer["choices"])
    async with server.session.get(server.url + "/metrics") as metrics:
        lines = (await metrics.text()).splitlines()
    assert f'vllm:generation_tokens_total{{model_name="m"}} {tokens}' in lines
    assert 'vllm:prompt_tokens_total{model_name="m"} 6' in lines
    assert 'vllm:num_requests_running{model_name="m"} 0' in lines


async def test_a_model_that_diverged_is_said_to_have(server):
    server.served.model.model.norm.weight.data.fill_(torch.nan)
    status, reason = await server.refusal(GENERATE, {"token_ids": [5]})
    assert status == 500
    assert "not finite: its params have diverged" in reason
    server.served.model.model.norm.weight.data.fill_(1.0)
    assert (await server.post(GENERATE, {"token_ids": [5]}))[0] == 200


async def test_the_clients_say_what_the_server_refused(server):
    async with tokens_client(server) as client:
        with pytest.raises(PromptTooLong, match=r"returned 400: .*a prompt of 256 tokens leaves"):
            await client.continued([5] * 256, Sampling())
        # As vLLM has it: a completion ends where the positions do.
        full = await client.continued([5] * 250, Sampling(max_tokens=300))
        assert len(full.completion_ids) <= 6
    async with tokens_client(server, model="other") as client:
        with pytest.raises(ClientError, match=r"returned 404: .*`other` does not exist"):
            await client.continued([5], Sampling())
