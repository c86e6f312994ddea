"""Replies as vendors send them, each a result of the model and none an error of the server."""

import json

import pytest

from ludic_gym.clients.chat_format import plain_completion
from ludic_gym.clients.responses import check_status
from ludic_gym.errors import ClientError, PromptTooLong
from ludic_gym.policies.chat import assistant_message, joined_messages
from ludic_gym.types import Completion, Sampling, ToolCall


def completion(message, reason="stop"):
    choice = {"message": {"role": "assistant", "content": None, **message}, "finish_reason": reason}
    return plain_completion({"choices": [choice]}, Sampling())


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        (None, "stop"),
        ("eos", "stop"),
        ("eos_token", "stop"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("content_filter", "stop"),
        ("refusal", "stop"),
        ("a_new_one", "stop"),
        ("model_length", "length"),
        ("max_tokens", "length"),
        ("function_call", "tool_calls"),
    ],
)
def test_any_end_is_a_result(sent, read):
    assert completion({"content": "5"}, sent).finish_reason == read


@pytest.mark.parametrize("sent", ["abort", "error", "cancelled"])
def test_a_reply_that_the_server_ended_is_none(sent):
    with pytest.raises(ClientError, match=sent):
        completion({"content": "5"}, sent)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ({"id": "a", "function": {"name": "now", "arguments": '{"a": 2}'}}, '{"a": 2}'),
        ({"id": "a", "function": {"name": "now", "arguments": None}}, "{}"),
        ({"id": "a", "function": {"name": "now"}}, "{}"),
        ({"id": "a", "function": {"name": "now", "arguments": {"a": 2}}}, '{"a": 2}'),
        ({"id": None, "function": {"name": "now", "arguments": ""}}, ""),
        ({"function": {"name": "now", "arguments": "{"}}, "{"),
    ],
)
def test_calls_of_tools_are_read_with_what_servers_leave_out(call, arguments):
    (read,) = completion({"tool_calls": [call]}).tool_calls
    assert (read.name, read.arguments, bool(read.id)) == ("now", arguments, True)


@pytest.mark.parametrize("content", [None, "", []])
def test_no_content_is_an_empty_text(content):
    assert completion({"content": content}).text == ""


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "This model's maximum context length is 100 tokens, you requested 140."),
        (400, "The input token count (140) exceeds the maximum number of tokens allowed (100)."),
        (400, "Input is too long for requested model."),
        (400, "This model's maximum prompt length is 100 but the request contains 140 tokens."),
        (400, "input length and `max_tokens` exceed context limit: 90 + 32 > 100"),
        (400, "too many tokens: total number of tokens in the prompt cannot exceed 100"),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 100. Given: 140 `inputs` tokens"),
        (413, "Request too large for model, please reduce your message size."),
        (400, "litellm.ContextWindowExceededError: too many tokens"),
    ],
)
def test_a_prompt_that_is_too_long_is_known_by_each_vendor_s_words(status, words):
    with pytest.raises(PromptTooLong):
        check_status("http://x", status, json.dumps({"error": {"message": words}}), {})


def test_another_refusal_is_no_long_prompt():
    with pytest.raises(ClientError) as caught:
        check_status("http://x", 400, '{"error": {"message": "no such model"}}', {})
    assert not isinstance(caught.value, PromptTooLong)


@pytest.mark.parametrize("arguments", ['{"a": 2', "[1]", '{"a": 2}""', "a=2", '"text"'])
def test_broken_arguments_are_not_sent_back(arguments):
    call = ToolCall(id="c", name="add", arguments=arguments)
    message = assistant_message(Completion(text="", finish_reason="stop", tool_calls=(call,)))
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_messages_of_the_user_in_a_row_are_one():
    user, reply = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    assert joined_messages([user, user, reply, user]) == [
        {"role": "user", "content": "a\n\na"},
        reply,
        user,
    ]
