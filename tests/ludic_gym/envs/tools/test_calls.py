import pytest

from ludic_gym.envs.tools.calls import Call, calls_in

LOOK = '{"name": "look", "arguments": {"at": 1}}'


@pytest.mark.parametrize(
    "text",
    [
        LOOK,
        f"[{LOOK}]",
        f" {LOOK}.\n",
        f"I look.\n```json\n{LOOK}\n```",
        f"<tool_call>{LOOK}</tool_call>",
        f"<tool_call>{LOOK}",
        f"<think>{LOOK} or not?</think>{LOOK}",
        LOOK.replace("arguments", "parameters"),
    ],
)
def test_a_call_may_be_written_in_several_ways(text):
    assert calls_in(text) == ([Call("look", {"at": 1})], "")


def test_several_calls_are_read_in_their_order():
    both = [Call("look", {"at": 1}), Call("go", {})]
    assert calls_in(f'[{LOOK}, {{"name": "go"}}]') == (both, "")
    tags = f'<tool_call>{LOOK}</tool_call> <tool_call>{{"name": "go"}}</tool_call>'
    assert calls_in(tags) == (both, "")


@pytest.mark.parametrize(
    "text",
    ["", "look", "1", '["look"]', '{"name": 1}', '{"name": "x", "arguments": [1]}', "[" * 10**5,
     f'[{LOOK}, 5]', "x" * 10**6],
)  # fmt: skip
def test_anything_else_is_an_error(text):
    calls, problem = calls_in(text)
    assert (calls, bool(problem)) == ([], True)
