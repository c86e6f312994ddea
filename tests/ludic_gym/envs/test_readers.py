"""Replies in Markdown, with a full stop or in quotes are read as the bare ones, in every id."""

import json
import time

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import CATALOG
from ludic_gym.envs.core.game import refusal
from ludic_gym.envs.tools.calls import Call, calls_in
from ludic_gym.envs.worlds.terminal import command_in
from ludic_gym.graders.extract import extract
from ludic_gym.graders.programs.blocks import is_fenced, program_in

# Code, calls and free texts have forms of their own.
IN_THEIR_OWN_FORM = {
    "ludic/InstructionFollowing-v0",
    "ludic/PythonFunctions-v0",
    "ludic/StdinStdout-v0",
    "ludic/SQL-v0",
    "ludic/ToolCalls-v0",
    "ludic/FunctionCalls-v0",
    "ludic/CustomerDesk-v0",
    "ludic/DataAnalysis-v0",
    "ludic/Terminal-v0",
    "ludic/SearchQA-v0",
}
IDS = [entry.id for entry in CATALOG if entry.id not in IN_THEIR_OWN_FORM]


def after(env, form):
    """The turn after the oracle's action in that form, and the action."""
    env.reset(seed=3)
    action = env.oracle_action()
    # Some oracles answer in tags, which a bare reply has not.
    bare = (extract(action)[0] or action) if env.single_turn else action
    return env.step(form.format(bare))[:4]


# With moves and an answer that do not count.
THOUGHT = "<think>Perhaps A1, left or 3.\n\nNo: <answer>7</answer>?</think>\n\n"


@pytest.mark.parametrize("env_id", IDS)
def test_a_decorated_reply_is_read_as_the_bare_one(env_id):
    env = gym.make(env_id).unwrapped
    bare = after(env, "{}")
    for form in ("{}.", "**{}**", "`{}`", "**{}.**", "\n{}\n", THOUGHT + "{}", THOUGHT + "**{}**"):
        assert after(env, form) == bare, form


PROGRAM = "def f(x):\n    return x  # a"
TEXT = st.text(st.sampled_from("abc .:,'\n"), max_size=20)


@given(TEXT, TEXT, st.sampled_from(["```", "````", "~~~"]), st.sampled_from(["", "py", "Python"]))
def test_a_program_in_a_block_is_read_whatever_text_is_around_it(before, after, fence, language):
    reply = f"{before}\n{fence}{language}\n{PROGRAM}\n{fence}\n{after}"
    assert program_in(reply) == PROGRAM
    assert is_fenced(reply)
    in_a_list = "\n".join("   " + line for line in f"{fence}\n{PROGRAM}\n{fence}".split("\n"))
    assert program_in(f"{before}\n{in_a_list}\n{after}") == PROGRAM


def test_the_last_block_in_the_language_is_the_program():
    shell = "```sh\npython x.py\n```"
    assert program_in(f"```py\nx = 1\n```\nBetter:\n```py\n{PROGRAM}\n```\n{shell}") == PROGRAM
    assert program_in(PROGRAM) == PROGRAM


def test_a_draft_in_a_thought_that_is_not_closed_is_no_program():
    cut_off = f"<think>Perhaps\n```py\n{PROGRAM}\n```\nor"
    assert program_in(cut_off) == ""
    assert not is_fenced(cut_off)
    assert program_in(f"{cut_off}</think>\n```py\nx = 1\n```") == "x = 1"


JSON = st.recursive(st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3))
CALLS = st.lists(
    st.builds(Call, st.sampled_from(["look", "go"]), st.dictionaries(st.text(max_size=5), JSON)),
    min_size=1,
    max_size=3,
)


@given(CALLS, TEXT, TEXT, st.sampled_from([None, 2]))
def test_calls_are_read_in_every_usual_form(calls, before, after, indent):
    values = [{"name": one.name, "arguments": dict(one.arguments)} for one in calls]
    # Backticks in an argument would end a block.
    text = json.dumps(values, indent=indent).replace("`", "\\u0060")
    block = f"```json\n{text}\n```"
    around = (f"{before}\n{form}\n{after}" for form in (text, block, f"```JSON {text} ```"))
    alone = (text, f"`{text}`", f"**{text}**.", f"<tool_call>{block}</tool_call>")
    for reply in (*around, *alone):
        assert calls_in(reply) == (calls, ""), reply


@pytest.mark.parametrize(
    "reply",
    [
        "{'name': 'look', 'arguments': {}}",
        '[{"name": "look", "arguments": {}},]',
        '{"name": "look", "arguments": {}}\n{"name": "go", "arguments": {}}',
        '[\n{"name": "look", "arguments": {}}\n{"name": "go", "arguments": {}}]',
        'I could send {"name": "look", "arguments": {}} now.',
        '{"name": "look", "arguments": {}} or nothing',
        '{"name": "look"',
        "No call is needed.",
    ],
)
def test_calls_are_not_guessed(reply):
    found, error = calls_in(reply)
    assert not found
    assert "a tool call is" in error


def test_a_refusal_lists_few_actions_and_names_the_form_of_many():
    assert refusal(("up", "left")) == "That is not a legal action. Legal actions: up, left."
    many = tuple(map(str, range(100)))
    assert refusal(many, "a number") == "That is not a legal action. Reply with just a number."
    assert refusal(()) == "That is not a legal action."


@pytest.mark.parametrize("env_id", IDS)
def test_a_refused_action_gets_feedback_that_names_the_legal_ones_or_their_form(env_id):
    env = gym.make(env_id).unwrapped
    env.reset(seed=3)
    if env.single_turn or not env.legal_actions():
        return
    text = env.step("% no move %")[0]
    assert any(start in text for start in ("Legal actions: ", "Reply with ", "You can: "))


SOLUTION = "def area(a, b):\n    return a * b"
OTHER = "print(area(2, 3), area(4, 5), area(6, 7), area(8, 9))"
FORMS = {
    "alone": [("python", SOLUTION)],
    "then a use": [("python", SOLUTION), ("python", OTHER)],
    "then tests": [("python", SOLUTION), ("python", f"assert area(2, 3) == 6\n{OTHER}")],
    "a longer draft": [("python", f"def area(a, b):\n    return 7\n{OTHER}"), ("python", SOLUTION)],
    "untagged, then bash": [("", SOLUTION), ("bash", "python solution.py --with --many --words")],
    "untagged, then output": [("", SOLUTION), ("text", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16")],
    "after imports": [("python", "import sys"), ("python", f"import math\n{SOLUTION}")],
}


@pytest.mark.parametrize("form", FORMS)
def test_the_block_that_defines_the_function_is_the_program(form):
    blocks = [f"```{language}\n{code}\n```" for language, code in FORMS[form]]
    found = program_in("\nThen:\n".join(blocks), defines="area").partition("\nprint")[0]
    namespace = {}
    exec(found, namespace)
    assert namespace["area"](2, 3) == 6


def test_without_a_name_the_longest_block_that_compiles_is_the_program():
    broken = "for line in sys.stdin print(line) and so on and so on"
    reply = f"```py\nprint(input())\n```\n```py\n{broken}\n```\n```py\nx = 1\n```"
    assert program_in(reply) == "print(input())"


HEAD = "def area(a, b):\n"


@pytest.mark.parametrize("body", ["", " ", "```\n```", "```py\n\n```", "No.", "```py\n(\n```"])
def test_a_head_without_a_body_is_no_program_of_its_own(body):
    assert not program_in(body, defines="area", head=HEAD).startswith(HEAD)


@pytest.mark.long
@pytest.mark.parametrize(
    "part", ["```\n", "~~~\n", "```py\nx = 1\n", "> ", "    x\n", "x = (\n", "\n"]
)
def test_a_megabyte_of_fences_or_lines_is_read_in_a_second(part):
    reply = part * (1_000_000 // len(part))
    start = time.process_time()
    program_in(reply, defines="area", head=HEAD)
    assert time.process_time() - start < 1.0


def test_several_blocks_of_commands_run_in_order():
    assert command_in("```bash\ncd a\n```\nThen:\n```bash\nls\n```") == "cd a\nls"
