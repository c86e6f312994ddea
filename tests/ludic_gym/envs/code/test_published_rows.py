"""Rows of data sets as others publish them: HumanEval, MBPP, APPS."""

import json

import pytest
from code_rows import ADD, answer

from ludic_gym.envs.code.programs import PythonFunctionsEnv, StdinStdoutEnv
from ludic_gym.errors import DataError

pytestmark = pytest.mark.usefixtures("a_sandbox")

HUMANEVAL = {
    "task_id": "x/0",
    "prompt": (
        "from typing import List\n\ndef half(x):\n    return x / 2\n\n"
        'def f(xs: List[int]):\n    """Half of the sum."""\n'
    ),
    "entry_point": "f",
    "canonical_solution": "    return half(sum(xs))\n",
    "test": "def check(candidate):\n    assert candidate([1, 2]) == half(3)\n",
}
MBPP_PLUS = {
    "task_id": "Mbpp/0",
    "prompt": '"""\nWrite a function that pairs up.\nassert pairs((1, 2)) == {(1, 2): 1}\n"""\n',
    "entry_point": "pairs",
    "canonical_solution": "def pairs(t):\n    return {t: 1}",
    "base_input": [[[1, 2]]],
    "plus_input": [[[3]]],
    "atol": 0,
    "assertion": "assert pairs((1, 2)) == {(1, 2): 1}\n",
}
MBPP = {
    "text": "Write a function to double.",
    "code": "def helper(x):\n    return x\n\ndef double(x):\n    return helper(x) * 2",
    "test_list": ["assert double(2) == 4", "assert double(0) == 0"],
    "test_setup_code": "",
}


@pytest.mark.parametrize("row", [HUMANEVAL, MBPP_PLUS, MBPP], ids=["humaneval", "plus", "mbpp"])
def test_rows_as_others_publish_them_can_be_played(rows, row):
    env = PythonFunctionsEnv(rows(row))
    env.reset(seed=0)
    assert answer(env, env.oracle_action())[0] == 1.0
    name = row.get("entry_point", "double")
    assert answer(env, f"def {name}(*a): return 7")[0] == 0.0


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"prompt": "p", "name": "f"}, "field 'tests' must be a list of texts"),
        ({**ADD, "expected": [1]}, "every one of 4 calls is a list"),
        ({**ADD, "calls": []}, "'calls' and 'expected' must be lists"),
        ({**ADD, "compared": "roughly"}, "field 'compared' is one of"),
        ({**MBPP, "test_list": ["assert triple(1)"]}, "no test calls a function"),
        ({**MBPP_PLUS, "assertion": "assert ("}, "the assertions are not valid Python"),
        ({**MBPP_PLUS, "base_input": [1]}, "'base_input' must be lists of arguments"),
    ],
)
def test_rows_that_cannot_be_played_are_refused_with_their_place(rows, row, complaint):
    with pytest.raises(DataError, match=f"0.jsonl line 1: .*{complaint}"):
        PythonFunctionsEnv(rows(row))


APPS = {
    "question": "Double it.",
    "input_output": json.dumps({"inputs": ["2\n", ["3", "x"]], "outputs": ["4\n", "6\n"]}),
    "solutions": json.dumps(["print(2 * int(input()))"]),
}


def apps_calls(name, inputs, outputs, solution, **fields):
    called = json.dumps({"fn_name": name, "inputs": inputs, "outputs": outputs})
    return {"question": "Do it.", "input_output": called, "solutions": json.dumps([solution]),
            **fields}  # fmt: skip


DOUBLED = apps_calls("twice", [[1], [4]], [[2], [8]], "def twice(n):\n    return 2 * n")
LEETCODE = apps_calls(
    "longest",
    [[["a", "bcd"]], [["xy"]]],
    ["bcd", "xy"],
    "class Solution:\n    def longest(self, words: List[str]) -> str:\n"
    "        return max(words, key=len)",
    starter_code="class Solution:\n    def longest(self, words: List[str]) -> str:\n        ",
)


def test_rows_of_apps_without_cases_are_left_out(rows):
    no_calls = {
        **DOUBLED,
        "input_output": json.dumps({"fn_name": "f", "inputs": [1], "outputs": [1]}),
    }
    env = StdinStdoutEnv(rows(no_calls, APPS, {**APPS, "input_output": ""}))
    assert env.num_rows == 1
    env.reset(seed=0)
    assert answer(env, env.oracle_action())[0] == 1.0
    with pytest.raises(DataError, match="no row has cases"):
        StdinStdoutEnv(rows(no_calls))


def test_rows_of_apps_that_call_a_function_are_tested_by_calls(rows):
    env = StdinStdoutEnv(rows(DOUBLED), comparator="exact")
    question, _ = env.reset(options={"row": 0})
    assert question == "Do it.\n\nWrite the function `twice`."
    assert answer(env, env.oracle_action())[0] == 1.0
    for program, outcome in [
        ("def twice(n):\n    return [2 * n]", "passed"),
        ("def twice(n):\n    return n", "wrong"),
        ("print(2)", "missing"),
        ("def twice(n):\n    return 1 / 0", "raised"),
    ]:
        assert answer(env, program)[1]["outcome"] == outcome


def test_the_prompt_of_a_row_of_apps_says_what_to_write(rows):
    env = StdinStdoutEnv(rows(DOUBLED, APPS))
    asks_for_program = [
        "standard input" in env.reset(options={"row": row})[1]["system_prompt"] for row in (0, 1, 0)
    ]
    assert asks_for_program == [False, True, False]


def test_rows_of_apps_may_ask_for_a_method(rows):
    env = StdinStdoutEnv(rows(LEETCODE))
    question, _ = env.reset(options={"row": 0})
    assert "Write the method `longest`. It begins with:\n```python\nclass Solution:" in question
    # List needs no import, as on the site that the row comes from.
    assert answer(env, env.oracle_action())[0] == 1.0
    plain = "def longest(words):\n    return max(words, key=len)"
    counts = (
        "class Solution:\n    seen = 0\n    def __init__(self): self.calls = 0\n"
        "    def longest(self, words):\n        self.calls += 1\n"
        "        return max(words, key=len) if self.calls == 1 else ''"
    )
    other = "class Solution:\n    def shortest(self, words):\n        return ''"
    broken = "class Solution:\n    def __init__(self, x): pass\n    def longest(self, w): pass"
    for program, outcome in [
        (plain, "passed"), (counts, "passed"), (other, "missing"), (broken, "raised"),
    ]:  # fmt: skip
        assert answer(env, program)[1]["outcome"] == outcome


def test_only_one_member_is_unwrapped_of_an_expected_result(rows):
    row = apps_calls("f", [[1], [2]], [[5, 6], [7]], "")
    env = StdinStdoutEnv(rows(row), partial_credit=True)
    for program, reward in [
        ("def f(n): return 5 if n == 1 else 7", 0.5),
        ("def f(n): return [5, 6] if n == 1 else 7", 1.0),
        ("def f(n): return [5, 6] if n == 1 else [7]", 1.0),
        ("def f(n): return [5, 6] if n == 1 else [[7]]", 0.5),
    ]:
        assert answer(env, program)[0] == reward
