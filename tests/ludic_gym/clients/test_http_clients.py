"""Requests of the HTTP clients, and completions made of the responses."""

import pytest
from aiohttp import web

from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.clients.vllm import VLLMChatClient
from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions
from ludic_gym.types import Completion, Sampling, ToolCall


async def test_an_answer_keeps_its_exact_tokens(http):
    sampling = Sampling(temperature=0.5)

    completion = await http.asked(http.replying(http.answer()), sampling, policy_version=7)

    assert completion == Completion(
        text="4",
        finish_reason="stop",
        sampling=sampling,
        prompt_ids=(1, 2, 3),
        completion_ids=(52, 9),
        logprobs=(-0.25, -0.5),
        policy_version=7,
    )


async def test_a_request_says_all_that_matters(http):
    bodies = []

    async def handler(request):
        bodies.append(await request.json())
        return web.json_response(http.answer())

    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=7, stop=("\n",), seed=2**62)
    await http.asked(handler, sampling, [tool], extra_body={"min_p": 0.1})

    assert bodies == [
        {
            "model": "m",
            "messages": http.ASK,
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 7,
            "stop": ["\n"],
            "seed": 2**62,
            "tools": [tool],
            "return_token_ids": True,
            "logprobs": True,
            "top_logprobs": 0,
            "top_k": 0,
            "min_p": 0.1,
            "repetition_penalty": 1.0,
        }
    ]


async def test_a_dialog_that_ends_with_the_assistant_is_continued(http):
    bodies = []

    async def handler(request):
        bodies.append(await request.json())
        return web.json_response(http.answer())

    await http.asked(handler, messages=[*http.ASK, {"role": "assistant", "content": "It is"}])

    assert bodies[0]["continue_final_message"] is True
    assert bodies[0]["add_generation_prompt"] is False


async def test_tool_calls_come_through(http):
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}

    completion = await http.asked(
        http.replying(http.answer(message=message, finish_reason="tool_calls"))
    )

    assert completion.text == ""
    assert completion.finish_reason == "tool_calls"
    assert completion.tool_calls == (ToolCall(id="c1", name="add", arguments='{"a": 1}'),)


async def test_a_server_without_token_ids_can_be_benchmarked_but_not_trained_on(http):
    bare = {"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}

    async with http.serving(
        http.replying(bare, http.answer(ids=[]) | {"prompt_token_ids": None})
    ) as url:
        async with OpenAIChatClient(f"{url}/v1", "m") as client:
            completion = await client.complete(http.ASK, Sampling())
        async with VLLMChatClient(url, "m") as client:
            with pytest.raises(ClientError, match="benchmarked with OpenAIChatClient"):
                await client.complete(http.ASK, Sampling())

    assert completion.text == "4"
    assert completion.prompt_ids is None


async def test_a_completion_has_the_request_as_sent_and_the_served_model(http):
    bodies = []

    async def handler(request):
        bodies.append(await request.json())
        message = {"content": "4", "reasoning_content": "2 and 2"}
        said = {"model": "m-2026", "system_fingerprint": "fp_1"}
        return web.json_response(http.answer(message=message) | said)

    rules = {"role": "system", "content": "Be brief."}
    async with (
        http.serving(handler) as url,
        OpenAIChatClient(f"{url}/v1", "m", extra_body={"top_p": 0.5}) as client,
    ):
        completion = await client.complete([rules, *http.ASK], Sampling(seed=3, stop=("!",)))

    call = completion.call
    assert (call.model, call.fingerprint) == ("m-2026", "fp_1")
    assert {**call.parameters, "messages": list(call.messages)} == bodies[0]
    assert (call.messages[0], call.parameters["top_p"]) == (rules, 0.5)
    assert call.usage == {"prompt_tokens": 3, "completion_tokens": 2}
    assert 0 < call.seconds < 5
    assert (completion.text, completion.reasoning) == ("4", "2 and 2")


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_or_may_not_end_with_the_version(http, path):
    async with (
        http.serving(http.replying(http.answer())) as url,
        VLLMChatClient(url + path, "m") as client,
    ):
        assert (await client.complete(http.ASK, Sampling())).text == "4"


async def test_the_only_model_of_a_server_needs_no_name(http):
    names = []

    async def handler(request):
        names.append((await request.json())["model"])
        return web.json_response(http.answer())

    models = http.replying({"data": [{"id": "tiny"}]})
    async with http.serving(handler, models=models) as url, VLLMChatClient(url) as client:
        await client.complete(http.ASK, Sampling())
        await client.complete(http.ASK, Sampling())

    assert names == ["tiny", "tiny"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", r"returned no JSON object: \[\]"),
        ("{}", "'choices' is None"),
        ('{"choices": [{"finish_reason": "stop"}]}', "'message' is None"),
    ],
)
async def test_an_answer_that_is_no_completion_is_an_error_that_shows_it(http, text, complaint):
    with pytest.raises(ClientError, match=complaint):
        await http.asked(http.replying(web.Response(text=text)))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<html>", "returned no JSON .*: <html>, 2 times in a row"),
        ('{"choices": [{"mess', "returned no JSON .*, 2 times in a row"),
        ('{"choices": []}', r"returned 502: .*\[\]}, 2 times in a row"),
    ],
)
async def test_a_cut_response_is_requested_again(http, text, complaint):
    again = http.replying(web.Response(text=text), http.answer())
    assert (await http.asked(again)).text == "4"
    replies = http.replying(web.Response(text=text), web.Response(text=text))
    options = HttpOptions(backoff_s=0.001, max_retries=1)
    with pytest.raises(ClientError, match=complaint):
        await http.asked(replies, options=options)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"ids": [1, 2, 3]}, "3 completion ids but 2 log-probs"),
        ({"logprobs": [-0.5]}, "2 completion ids but 1 log-probs"),
        ({"ids": ["a", "b"]}, r"completion ids are \['a', 'b'\]"),
        ({"logprobs": [None, -1.0]}, "not finite numbers"),
        ({"logprobs": [float("-inf"), -1.0]}, "not finite numbers"),
        ({"message": {"content": {"text": "5"}}}, "'content' is {'text': '5'}"),
        ({"message": {"content": ["5"]}}, "a part of the content is an object, got '5'"),
        ({"message": {"content": [{"type": "text", "text": 5}]}}, "'text' is 5"),
    ],
)
async def test_a_completion_with_a_wrong_part_is_an_error_that_shows_it(http, wrong, complaint):
    with pytest.raises(ClientError, match=complaint):
        await http.asked(http.replying(http.answer(**wrong)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # OpenAI, Anthropic, vLLM and Ollama; Gemini; Mistral and older vLLM; proxies.
        ('{"error": {"message": "no", "type": "t", "param": null, "code": 1}}', "no"),
        ('{"type": "error", "error": {"type": "t", "message": "no"}, "request_id": "r"}', "no"),
        ('[{"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}}]', "no"),
        ('{"object": "error", "message": "no", "type": "t", "param": null, "code": 400}', "no"),
        ('{"error": "no"}', "no"),
        ("[]", "[]"),
        ("<html>", "<html>"),
    ],
)
async def test_the_message_of_a_refusal_is_shown_as_each_vendor_writes_it(http, text, shown):
    with pytest.raises(ClientError) as caught:
        await http.asked(http.replying(web.Response(status=400, text=text)))
    assert str(caught.value).endswith(f"returned 400: {shown}")
