from copy import deepcopy

import pytest

from ludic_gym.contexts import (
    FullDialog,
    LatestObservation,
    SlidingWindow,
    TruncatedThinkingContext,
    without_thinking,
)
from ludic_gym.errors import ConfigError


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "7"}
TEXT_RESULT = {"role": "user", "name": "tools", "content": "7"}
SYSTEM = {"role": "system", "content": "S"}

CONTEXTS = [
    FullDialog,
    LatestObservation,
    TruncatedThinkingContext,
    lambda: SlidingWindow(1000, len),
    lambda: SlidingWindow(3, len, summarize=lambda dropped: f"{len(dropped)} dropped"),
]


def filled(context, *messages, system_prompt="S"):
    context.reset(system_prompt)
    for message in messages:
        context.add(message)
    return context


@pytest.mark.parametrize("make", CONTEXTS)
def test_no_context_changes_what_it_returned_or_what_it_was_given(make):
    dialog = [user("a"), assistant("<think>x</think>b"), user("c"), deepcopy(CALL), RESULT]
    given = deepcopy(dialog)
    context = filled(make(), *dialog)

    shown = context.messages()
    before = list(shown)
    context.add(user("d"))
    context.add(assistant("e"))
    context.reset("T")

    assert shown == before
    assert dialog == given


@pytest.mark.parametrize("make", CONTEXTS)
def test_every_context_starts_with_the_system_prompt_if_there_is_one(make):
    assert filled(make(), user("a")).messages() == [SYSTEM, user("a")]
    assert filled(make(), user("a"), system_prompt="").messages() == [user("a")]


@pytest.mark.parametrize("make", CONTEXTS)
def test_every_context_forgets_at_a_reset(make):
    context = filled(make(), user("a"), assistant("b"))
    context.reset("S")

    assert context.messages() == [SYSTEM]


@pytest.mark.parametrize("make", CONTEXTS)
def test_tool_calls_and_results_of_the_turn_are_shown(make):
    turn = [user("a"), CALL, RESULT, assistant("")]

    assert filled(make(), *turn).messages() == [SYSTEM, *turn]


def test_the_full_dialog_is_shown():
    dialog = [user("a"), assistant("b"), user("c")]

    assert filled(FullDialog(), *dialog).messages() == [SYSTEM, *dialog]


def test_the_latest_observation_hides_the_turns_before():
    dialog = [user("a"), assistant("b"), user("c"), CALL, TEXT_RESULT]

    shown = filled(LatestObservation(), *dialog).messages()

    # A tool's result is a user message too, but no observation.
    assert shown == [SYSTEM, user("c"), CALL, TEXT_RESULT]


def test_the_thinking_of_earlier_turns_is_hidden_and_that_of_this_turn_is_not():
    dialog = [
        user("a"),
        assistant("<think>1</think>\n\nb"),
        user("c"),
        assistant("<think>2</think>d"),
        TEXT_RESULT,
    ]
    context = filled(TruncatedThinkingContext(), *dialog)

    assert context.messages() == [SYSTEM, user("a"), assistant("b"), *dialog[2:]]
    context.add(user("e"))
    assert context.messages()[4] == assistant("d")


def test_a_placeholder_stands_where_the_thinking_was():
    dialog = [user("a"), assistant("<think>1</think>\n\nb"), user("c")]
    context = filled(TruncatedThinkingContext("<think>[...]</think>"), *dialog)

    assert context.messages()[2]["content"] == "<think>[...]</think>\n\nb"


def test_only_the_models_own_thinking_is_hidden():
    question = user("What does <think>x</think> mean?")
    shown = filled(TruncatedThinkingContext(), question, CALL, RESULT, user("b")).messages()

    assert shown == [SYSTEM, question, CALL, RESULT, user("b")]


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("<think>1</think>b", "b"),
        ("<think>1</think>\n\nb\n", "b\n"),
        ("<think>a\nb</think> c <think>d</think> e", "c e"),
        ("a <think>1</think>", "a "),
        ("1</think>b", "b"),
        ("1</think>b<think>2</think>c", "bc"),
        ("<think>never closed", ""),
        ("b <think>never closed", "b "),
        ("<think>", ""),
        ("none", "none"),
        ("", ""),
    ],
)
def test_thinking_is_taken_out(text, without):
    assert without_thinking(text) == without


def test_the_window_shows_the_newest_turns_that_fit():
    dialog = [user("aaaa"), assistant("bb"), user("ccc"), assistant("d"), user("ee")]
    window = filled(SlidingWindow(8, len), *dialog)

    # System 1 + turn 3: 2 + turn 2: 4 = 7 tokens; with turn 1 it would be 13.
    assert window.messages() == [SYSTEM, *dialog[2:]]


def test_the_window_never_parts_a_call_from_its_result():
    dialog = [user("a"), CALL, RESULT, assistant("b"), user("c")]
    window = filled(SlidingWindow(60, len), *dialog)

    # The call alone is longer than the window.
    assert window.messages() == [SYSTEM, user("c")]


def test_the_last_turn_is_shown_even_if_it_does_not_fit():
    window = filled(SlidingWindow(2, len), user("a"), assistant("b"), user("too long"))

    assert window.messages() == [SYSTEM, user("too long")]


def test_what_does_not_fit_can_be_summarized():
    def roles(dropped):
        return "Before: " + ", ".join(m["role"] for m in dropped)

    window = filled(SlidingWindow(4, len, roles), user("aa"), assistant("bb"), user("cc"))

    assert window.messages() == [
        {"role": "system", "content": "S\n\nBefore: user, assistant"},
        user("cc"),
    ]


def test_a_window_without_room_is_refused():
    with pytest.raises(ConfigError, match="got 0"):
        SlidingWindow(0, len)
