"""Parts of a reply: reasoning, text and tool calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.dialogs import UNREADABLE
from ludic_gym.text_calls import ReplyFormat, split_calls

TAGGED = ReplyFormat(calls="tagged", thinks=True)
CALLS = {
    "hermes": '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    "llama": '{"name": "add", "parameters": {"a": 1}}',
    "mistral": '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}]',
}
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
        (f"[THINK]{CALL}[/THINK]no", "no", CALL, []),
        ("<tool_call>no JSON</tool_call> b", "b", "", [(UNREADABLE, "no JSON")]),
        ('<tool_call>{"name": "add", "a', "", "", [("add", '{"name": "add", "a')]),
        # Cut off by the end of the turn, but whole.
        (CALL.removesuffix("</tool_call>"), "", "", [("add", '{"a": 1}')]),
        ('<tool_call>{"name": 3}', "", "", [(UNREADABLE, '{"name": 3}')]),
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
    # Text after a call makes it one that cannot be read, and no answer.
    assert read(f"{text} and so on", bare) == ("", "", [("add", f"{text} and so on")])


def test_without_tools_every_text_is_text():
    assert read(CALL, ReplyFormat(calls="none")) == (CALL, "", [])


def test_a_prompt_can_open_the_thought():
    opened = ReplyFormat(thinks=True, in_thought=True)
    assert read("hm</think>4", opened) == ("4", "hm", [])
    assert read(f"{CALL}</think>4", opened) == ("4", CALL, [])
    assert read(f"hm {CALL}", opened) == ("", f"hm {CALL}", [])


@pytest.mark.parametrize(
    ("form", "text", "content", "calls"),
    [
        ("tagged", f"I add. {CALLS['hermes']}", "I add.", [("add", '{"a": 1}')]),
        ("tagged", "a <tool_call>no JSON</tool_call>", "a", [(UNREADABLE, "no JSON")]),
        ("list", f"Well {CALLS['mistral']}", "Well", [("add", '{"a": 1}')]),
        ("list", '[TOOL_CALLS]add[ARGS]{"a": 1}', "", [("add", '{"a": 1}')]),
        (
            "list",
            '[TOOL_CALLS]add{"a": 1}[TOOL_CALLS]sub[CALL_ID]ab12[ARGS]{"b": 2}',
            "",
            [("add", '{"a": 1}'), ("sub", '{"b": 2}')],
        ),
        ("list", "[TOOL_CALLS] [1]", "", [(UNREADABLE, "[1]")]),
        ("list", '[{"name": "add"}]', None, []),
        ("bare", f"<|python_tag|>{CALLS['llama']}", "", [("add", '{"a": 1}')]),
        (
            "bare",
            '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {"b": 1}}',
            "",
            [("f", "{}"), ("g", '{"b": 1}')],
        ),
        ("bare", f"I say {CALLS['llama']}", None, []),
        ("bare", '{"a": 1}', None, []),
        ("bare", '{"name": "f", "param', "", [("f", '{"name": "f", "param')]),
        ("bare", "<|python_tag|>f(1)", "", [(UNREADABLE, "f(1)")]),
        ("bare", "", None, []),
    ],
)
def test_calls_are_read_by_the_family_of_the_model(form, text, content, calls):
    assert split_calls(text, form) == (text if content is None else content, calls)


@given(st.sampled_from(["tagged", "list", "bare"]), st.text())
def test_any_text_is_read_without_an_error(form, noise):
    for text in (noise, *(f"{call}{noise}" for call in CALLS.values())):
        split_calls(text, form)
