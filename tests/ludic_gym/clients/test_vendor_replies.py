"""Replies as vendors send them, each a result of the model and none an error of the server."""

import pytest

from ludic_gym.policies.chat import assistant_message, joined_messages
from ludic_gym.types import Completion, ToolCall


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
