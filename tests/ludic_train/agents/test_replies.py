"""Parts of a reply: reasoning, text and tool calls."""

import pytest

from ludic_train.agents.prompts import ReplyFormat

TAGGED = ReplyFormat(calls="tagged", thinks=True)
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'


def read(text, form=TAGGED, tools=()):
    return form.parts(text, tools)


@pytest.mark.parametrize(
    ("text", "content", "reasoning", "calls"),
    [
        ("  plain text \n", "  plain text \n", "", []),
        (f"I add.\n{CALL}", "I add.", "", [("add", '{"a": 1}')]),
        (f"{CALL}\n{CALL}\n", "", "", [("add", '{"a": 1}')] * 2),
        (f"{CALL} and then", "and then", "", [("add", '{"a": 1}')]),
        ("<think>\nhm </think>\n\nfour", "four", "hm", []),
        (f"<think>{CALL}</think>no", "no", CALL, []),
        ("a <tool_call>no JSON</tool_call> b", "a <tool_call>no JSON</tool_call> b", "", []),
        # Cut off by the end of the turn, but whole.
        (CALL.removesuffix("</tool_call>"), "", "", [("add", '{"a": 1}')]),
        ('<tool_call>{"name": 3}', '<tool_call>{"name": 3}', "", []),
        ("1 < 2 <tool", "1 < 2 <tool", "", []),
        ("<think>never ends", "", "never ends", []),
    ],
)
def test_a_reply_is_read(text, content, reasoning, calls):
    assert read(text) == (content, reasoning, calls)


def test_parameters_in_tags_have_the_types_of_their_schema():
    schema = {"a": {"type": "integer"}, "note": {"type": "string"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": schema}}}
    text = (
        "<tool_call>\n<function=f>\n<parameter=a>\n3\n</parameter>\n"
        "<parameter=note>\n3\n</parameter>\n</function>\n</tool_call>"
    )
    assert read(text, tools=[tool])[2] == [("f", '{"a": 3, "note": "3"}')]


def test_a_bare_object_is_a_call_only_as_the_whole_reply():
    bare = ReplyFormat(calls="bare")
    text = '{"name": "add", "parameters": {"a": 1}}'
    assert read(text, bare) == ("", "", [("add", '{"a": 1}')])
    assert read(f"I say {text}", bare) == (f"I say {text}", "", [])
    assert read('{"a": 1}', bare) == ('{"a": 1}', "", [])
    assert read(f"{text}; {text}", bare) == ("", "", [("add", '{"a": 1}')] * 2)
    assert read(f"<|python_tag|>{text}", bare) == ("", "", [("add", '{"a": 1}')])
    assert read(f"{text} and so on", bare) == (f"{text} and so on", "", [])


def test_without_tools_every_text_is_text():
    assert read(CALL, ReplyFormat(calls="none")) == (CALL, "", [])


def test_a_prompt_can_open_the_thought():
    assert read("hm</think>4", ReplyFormat(thinks=True, in_thought=True)) == ("4", "hm", [])
