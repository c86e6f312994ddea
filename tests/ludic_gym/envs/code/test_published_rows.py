"""Rows of code benchmarks as they are published."""

from __future__ import annotations

import base64
import json
import pickle
import sqlite3
import zlib
from contextlib import closing

import gymnasium as gym
import pytest
from code_rows import ADD, answer

import ludic_gym as lg
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
    with pytest.raises(DataError, match="none of 1 rows has a question"):
        StdinStdoutEnv(rows(no_calls))


def test_rows_of_apps_that_call_a_function_are_tested_by_calls(rows):
    env = StdinStdoutEnv(rows(DOUBLED))
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


def packed(value):
    """Cases as LiveCodeBench packs its private ones."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


STDIN = {
    "question_title": "Sum",
    "question_content": "Print the sum of two integers.",
    "platform": "atcoder",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"}]),
    "private_test_cases": packed([{"input": "5 6\n", "output": "11\n", "testtype": "stdin"}]),
    "metadata": "{}",
}
METHOD = {
    "question_content": "Return the sum of a list and a number.",
    "starter_code": "class Solution:\n    def total(self, xs: List[int], n: int) -> int:\n        ",
    "public_test_cases": json.dumps(
        [{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]
    ),
    "private_test_cases": packed([{"input": "[]\n-1", "output": "-1", "testtype": "functional"}]),
    "metadata": '{"func_name": "total"}',
}
SUM = "```python\nprint(sum(map(int, input().split())))\n```"
TOTAL = "```python\nclass Solution:\n    def total(self, xs: List[int], n): return sum(xs) + n\n```"


def made(env_id, tmp_path, *rows, **kwargs):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return gym.make(env_id, data=str(path), **kwargs)


def played(env, reply, row=0):
    env.reset(options={"row": row})
    _, reward, _, _, info = env.step(reply)
    return reward, info


def test_livecodebench_runs_public_and_private_cases(tmp_path):
    env = made("ludic/LiveCodeBench-v0", tmp_path, STDIN, METHOD)
    reward, info = played(env, SUM)
    assert (reward, info["total"]) == (1, 2)
    assert played(env, "```python\nprint(3)\n```")[1]["passed"] == 1
    reward, info = played(env, TOTAL, row=1)
    assert (reward, info["total"]) == (1, 2)
    text, info = env.reset(options={"row": 1})
    assert "Write the method `total`." in text
    assert "Python function" in info["system_prompt"]


class Harmful:
    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Harmful()), "the pickle holds more than a text: "),
        (pickle.dumps(["a"]), "the pickle holds more than a text: EMPTY_LIST"),
        (b"\x80\x04.", "holds 0 texts in place of one"),
        (b"no pickle", "cannot be read"),
    ],
)
def test_private_cases_are_never_unpickled(content, message, tmp_path):
    text = base64.b64encode(zlib.compress(content)).decode()
    with pytest.raises(lg.DataError, match=message):
        made("ludic/LiveCodeBench-v0", tmp_path, {**STDIN, "private_test_cases": text})


@pytest.mark.parametrize(
    "text", ["%%%", "abcd", base64.b64encode(zlib.compress(b"x")[:-3]).decode()]
)
def test_a_packing_that_is_broken_is_named(text, tmp_path):
    with pytest.raises(lg.DataError, match="line 1: field 'private_test_cases' cannot be read"):
        made("ludic/LiveCodeBench-v0", tmp_path, {**STDIN, "private_test_cases": text})


@pytest.fixture
def databases(tmp_path):
    """A folder with one database, as Spider and BIRD have them."""
    folder = tmp_path / "database" / "pets"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "pets.sqlite")) as database:
        database.executescript(
            "CREATE TABLE pet (name TEXT, age INTEGER);"
            "INSERT INTO pet VALUES ('Ada', 3), ('Bob', 3), ('Cleo', 7);"
        )
    return str(tmp_path / "database")


ALL = {"db_id": "pets", "question": "Name and age of each pet?", "query": "SELECT * FROM pet"}
BY_AGE = {
    "db_id": "pets",
    "question": "Names by age?",
    "query": "SELECT name FROM pet ORDER  BY age DESC",
}
SPIDER = [ALL, BY_AGE]


def test_spider_takes_columns_in_any_order_and_rows_by_order_by(tmp_path, databases):
    env = made("ludic/Spider-v0", tmp_path, *SPIDER, databases=databases)
    text, _ = env.reset(options={"row": 0})
    assert text == "CREATE TABLE pet (name TEXT, age INTEGER);\n\nName and age of each pet?"
    assert played(env, "SELECT age, name FROM pet ORDER BY name DESC")[0] == 1
    assert played(env, "SELECT age, name FROM pet WHERE age > 3")[0] == 0
    assert played(env, "SELECT name FROM pet ORDER BY age DESC, name", row=1)[0] == 1
    assert played(env, "SELECT name FROM pet ORDER BY age, name", row=1)[0] == 0
    env.reset(options={"row": 1})
    assert env.step(env.unwrapped.oracle_action())[1] == 1


def test_bird_compares_sets_and_shows_the_evidence(tmp_path, databases):
    row = {
        "question_id": 1,
        "db_id": "pets",
        "question": "Ages of the pets?",
        "evidence": "age is in years",
        "SQL": "SELECT DISTINCT age FROM pet ORDER BY age",
        "difficulty": "simple",
    }
    env = made("ludic/BIRD-v0", tmp_path, row, databases=databases)
    assert "External knowledge: age is in years\nAges of" in env.reset(options={"row": 0})[0]
    assert played(env, "SELECT age FROM pet ORDER BY age DESC")[0] == 1
    assert played(env, "SELECT age, age FROM pet")[0] == 0
    # The database is read, and not changed.
    for query in ("DELETE FROM pet", "ATTACH 'x' AS y", "PRAGMA user_version = 3"):
        assert played(env, query)[1]["outcome"] != "passed"
    assert played(env, "SELECT age FROM pet")[0] == 1


def test_a_database_with_a_write_ahead_log_is_read(tmp_path, databases):
    with closing(sqlite3.connect(tmp_path / "database" / "pets" / "pets.sqlite")) as database:
        database.execute("PRAGMA journal_mode = WAL")
    env = made("ludic/Spider-v0", tmp_path, *SPIDER, databases=databases)
    assert played(env, "SELECT name, age FROM pet")[0] == 1


def test_databases_that_are_missing_or_too_large_are_named(tmp_path, databases):
    with pytest.raises(
        lg.ConfigError, match=r"name the folder with pets/pets.sqlite as databases="
    ):
        made("ludic/Spider-v0", tmp_path, *SPIDER)
    with pytest.raises(lg.DataError, match=r"pets.sqlite: cannot be read \(No such file"):
        made("ludic/Spider-v0", tmp_path, *SPIDER, databases=str(tmp_path))
    bad = {**SPIDER[0], "db_id": "../pets"}
    with pytest.raises(
        lg.DataError, match=r"'db_id' must be letters, digits, _ or -, got '../pets'"
    ):
        made("ludic/Spider-v0", tmp_path, bad, databases=databases)
    path = tmp_path / "database" / "pets" / "pets.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(lg.DataError, match="cannot be read as a SQLite database"):
        made("ludic/Spider-v0", tmp_path, *SPIDER, databases=databases)


def test_a_database_larger_than_the_memory_of_a_query_is_refused(tmp_path, databases):
    path = tmp_path / "database" / "pets" / "pets.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE big (x)")
        database.execute("INSERT INTO big VALUES (zeroblob(3000000))")
        database.commit()
    with pytest.raises(lg.ConfigError, match=r"the largest database has 3 MiB.*set memory_mb=10"):
        made("ludic/Spider-v0", tmp_path, *SPIDER, databases=databases, memory_mb=8)


HUMANEVAL_PLUS = {
    "task_id": "HumanEval/99",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "base_input": [[1]],
    "plus_input": [[-2], [0.5]],
    "atol": 0,
}
FIND_ZERO = {
    "prompt": "def poly(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\n\n\n"
    'def find_zero(xs):\n    """A root."""\n',
    "entry_point": "find_zero",
    "canonical_solution": "    return (-xs[1] + 1) / 2 if len(xs) == 3 else -xs[0] / xs[1]\n",
    "base_input": [[[-1, 1]]],
    "plus_input": [[[0, -1, 1]]],
    "atol": 1e-4,
}


def test_humaneval_plus_is_read_from_its_own_file(tmp_path):
    inner = "    def twice(y):\n        return y + y\n    return twice(x)\n"
    nested = {**HUMANEVAL_PLUS, "canonical_solution": inner}
    env = made("ludic/HumanEvalPlus-v0", tmp_path, HUMANEVAL_PLUS, FIND_ZERO, nested)
    env.reset(options={"row": 2})
    assert env.step(env.unwrapped.oracle_action())[1] == 1
    reward, info = played(env, "```python\ndef double(x): return x + x\n```")
    assert (reward, info["total"]) == (1, 3)
    assert played(env, "```python\ndef double(x): return abs(x + x)\n```")[0] == 0
    # x * x - x has two roots, and the reference finds one of them.
    one = "```python\ndef find_zero(xs): return 1.0\n```"
    assert played(env, one, row=1)[0] == 1
    assert played(env, one.replace("1.0", "0.5"), row=1)[0] == 0


COLUMNS = ("prompt", "entry_point", "canonical_solution")
HUMANEVAL_PLUS_OF_HUB = {name: HUMANEVAL_PLUS[name] for name in COLUMNS}
# As the hub has them: NumPy is imported, and results stand beside the inputs.
CHECKS = """import numpy as np
from math import inf

def assertion(out, exp, atol):
    assert np.allclose(out, exp, atol=atol)
"""


def test_evalplus_on_the_hub_is_read_without_numpy(tmp_path):
    mbpp = {
        "task_id": 2,
        "prompt": "Write a function to double.",
        "code": "def double(x):\n    return 2 * x",
        "test_imports": [],
        "test_list": ["assert double(1) == 2"],
        "test": f"{CHECKS}inputs = [[1], [5], [-inf], [(1, 2)]]\nresults = []\n"
        "for inp, exp in zip(inputs, results):\n    assertion(double(*inp), exp, 0)\n",
    }
    env = made("ludic/MBPPPlus-v0", tmp_path, mbpp)
    assert played(env, "```python\ndef double(x): return x + 1\n```")[0] == 0
    reward, info = played(env, "```python\ndef double(x): return x * 2\n```")
    assert (reward, info["total"]) == (1, 4)
    body = "def check(candidate):\n    inputs = [[1], [0.5]]\n    results = [2, 1.0]\n"
    humaneval = {
        **HUMANEVAL_PLUS_OF_HUB,
        "test": f"{CHECKS}{body}    for inp, exp in zip(inputs, results):\n"
        "        assertion(candidate(*inp), exp, 1e-3)\n",
    }
    env = made("ludic/HumanEvalPlus-v0", tmp_path, humaneval)
    assert played(env, "```python\ndef double(x): return x + x + 1e-4\n```")[0] == 1
    assert played(env, "```python\ndef double(x): return x + x + 1e-2\n```")[0] == 0


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("import numpy as np\n", "the tests have no list `inputs`"),
        ("import numpy as np\ninputs = [[open('x')]]", "no plain values"),
        ("import numpy as np\ninputs = [1]", "no list `inputs` of lists, got \\[1\\]"),
        ("import numpy as np\n(", "not valid Python"),
    ],
)
def test_inputs_that_are_no_plain_values_are_named(test, message, tmp_path):
    with pytest.raises(lg.DataError, match=f"line 1: .*{message}"):
        made("ludic/HumanEvalPlus-v0", tmp_path, {**HUMANEVAL_PLUS_OF_HUB, "test": test})
