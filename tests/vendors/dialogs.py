"""Dialogs, a row each: what is sent of them, and what a server is sent that refuses them."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dialog:
    """messages: as a policy or an agent has them. sent: of the chat route.

    system, turns: of Anthropic's route; turns are role and content of each message.
    """

    name: str
    messages: list[Any]
    sent: list[Any]
    turns: list[Any]
    system: str | None = None


@dataclass(frozen=True)
class Refused:
    """A dialog that a server or template refuses in these words, and what it is sent then."""

    name: str
    status: int
    words: str
    messages: list[Any]
    sent: list[Any]


def said(role, content, **fields):
    return {"role": role, "content": content, **fields}


def made(id="c1", name="add", arguments='{"a": 2}', **fields):
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **fields,
    }


def used(id="c1", name="add", **input):
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(content="4", id="c1", **fields):
    return said("tool", content, tool_call_id=id, **fields)


def text(value):
    return {"type": "text", "text": value}


def got(content="4", id="c1"):
    return {"type": "tool_result", "tool_use_id": id, "content": content}


ASK, BRIEF = said("user", "2+2?"), said("system", "Be brief.")
CALLED = said("assistant", None, tool_calls=[made()])
TWICE = said("assistant", None, tool_calls=[made(), made("c2")])
ASKED = ("user", [text("2+2?")])
DIALOGS = [
    Dialog("a question", [ASK], [ASK], [ASKED]),
    Dialog("a system prompt", [BRIEF, ASK], [BRIEF, ASK], [ASKED], "Be brief."),
    Dialog(
        "two system prompts",
        [BRIEF, said("system", "Be kind."), ASK],
        [said("system", "Be brief.\n\nBe kind."), ASK],
        [ASKED],
        "Be brief.\n\nBe kind.",
    ),
    Dialog(
        "two messages of the user",
        [ASK, said("user", "Now!")],
        [said("user", "2+2?\n\nNow!")],
        [("user", [text("2+2?\n\nNow!")])],
    ),
    Dialog(
        "two messages of the assistant",
        [ASK, said("assistant", "I"), said("assistant", "add."), ASK],
        [ASK, said("assistant", "I\n\nadd."), ASK],
        [ASKED, ("assistant", [text("I\n\nadd.")]), ASKED],
    ),
    Dialog(
        "a text and a call in two messages",
        [ASK, said("assistant", "I add."), CALLED, result(name="add")],
        [ASK, said("assistant", "I add.", tool_calls=[made()]), result(name="add")],
        [ASKED, ("assistant", [text("I add."), used(a=2)]), ("user", [got()])],
    ),
    Dialog(
        "a result without the name of its tool",
        [ASK, CALLED, result()],
        [ASK, CALLED, result(name="add")],
        [ASKED, ("assistant", [used(a=2)]), ("user", [got()])],
    ),
    Dialog(
        "a result without its call",
        [ASK, said("assistant", "<tool_call>"), result(name="add")],
        [
            ASK,
            said("assistant", "<tool_call>"),
            said("user", "<tool_result>\n4\n</tool_result>"),
        ],
        [
            ASKED,
            ("assistant", [text("<tool_call>")]),
            ("user", [text("<tool_result>\n4\n</tool_result>")]),
        ],
    ),
    Dialog(
        "a call without its result",
        [ASK, CALLED, said("user", "So?")],
        [ASK, CALLED, result("Error: not run", name="add"), said("user", "So?")],
        [
            ASKED,
            ("assistant", [used(a=2)]),
            ("user", [got("Error: not run"), text("So?")]),
        ],
    ),
    Dialog(
        "one result of two calls",
        [ASK, TWICE, result("5", "c2"), said("user", "So?")],
        [
            ASK,
            TWICE,
            result("5", "c2", name="add"),
            result("Error: not run", name="add"),
            said("user", "So?"),
        ],
        [
            ASKED,
            ("assistant", [used(a=2), used("c2", a=2)]),
            ("user", [got("5", "c2"), got("Error: not run"), text("So?")]),
        ],
    ),
    Dialog(
        "a name of the user",
        [said("user", "4", name="tools")],
        [said("user", "4")],
        [("user", [text("4")])],
    ),
    Dialog(
        "two results in a row",
        [
            ASK,
            said("assistant", None, tool_calls=[made(), made("c2")]),
            result(),
            result("5", "c2"),
        ],
        [
            ASK,
            said("assistant", None, tool_calls=[made(), made("c2")]),
            result(name="add"),
            result("5", "c2", name="add"),
        ],
        [
            ASKED,
            ("assistant", [used(a=2), used("c2", a=2)]),
            ("user", [got(), got("5", "c2")]),
        ],
    ),
    Dialog(
        "a thought of another server",
        [ASK, said("assistant", "4", reasoning_content="2 and 2"), ASK],
        [ASK, said("assistant", "4"), ASK],
        [ASKED, ("assistant", [text("4")]), ASKED],
    ),
    Dialog(
        "a message of no characters",
        [ASK, said("assistant", ""), ASK],
        [ASK, said("assistant", ""), ASK],
        [("user", [text("2+2?"), text("2+2?")])],
    ),
    *(
        Dialog(
            f"the broken arguments {arguments}",
            [ASK, said("assistant", None, tool_calls=[made(arguments=arguments)]), result("no")],
            [
                ASK,
                said("assistant", None, tool_calls=[made(arguments="{}")]),
                result("no", name="add"),
            ],
            [ASKED, ("assistant", [used()]), ("user", [got("no")])],
        )
        for arguments in ('{"a": 2', "[1]", '{"a": 2}""', "a=2", '"text"', "")
    ),
]
FOLDED = [said("user", "Be brief.\n\n2+2?")]
REFUSED = [
    Refused("Gemma's template", 400, "System role not supported", [BRIEF, ASK], FOLDED),
    Refused(
        "older templates of Mistral",
        400,
        "Conversation roles must alternate user/assistant/user/assistant/...",
        [BRIEF, ASK],
        FOLDED,
    ),
    Refused(
        "llama.cpp with status 500",
        500,
        "Only user, assistant and tool roles are supported, got system. at row 9, column 2",
        [BRIEF, ASK],
        FOLDED,
    ),
    Refused(
        "Gemma at Google",
        400,
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        [BRIEF, ASK],
        FOLDED,
    ),
    Refused(
        "Qwen's template",
        400,
        "System message must be at the beginning.",
        [BRIEF, ASK, said("assistant", "4"), said("system", "Now!")],
        [BRIEF, ASK, said("assistant", "4"), said("user", "Now!")],
    ),
    *(
        Refused(
            f"a server of dialogs without empty messages, {vendor}",
            400,
            words,
            [ASK, said("assistant", ""), said("user", "So?")],
            [said("user", "2+2?\n\nSo?")],
        )
        for vendor, words in (
            ("Moonshot", "the message at position 1 with role 'assistant' must not be empty"),
            ("Mistral", "Assistant message must have either content or tool_calls, but not none"),
        )
    ),
    Refused(
        "Mistral",
        400,
        "Unexpected role 'user' after role 'tool'",
        [ASK, CALLED, result(), said("user", "So?")],
        [ASK, CALLED, result("4\n\nSo?", name="add")],
    ),
]
