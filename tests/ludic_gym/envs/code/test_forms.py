"""Right programs of published and of own rows earn the reward in every form of a reply."""

import gzip
import json
import os
from pathlib import Path

import pytest
from code_rows import ADD
from program_forms import continuations, replies

from ludic_gym.envs.code.programs import PythonFunctionsEnv, StdinStdoutEnv
from ludic_gym.envs.code.sql import SQLEnv

pytestmark = pytest.mark.usefixtures("a_sandbox")

APPS = [
    {
        "question": "Print the sum of the numbers on the line.",
        "solutions": json.dumps(["print(sum(map(int, input().split())))"]),
        "input_output": json.dumps({"inputs": ["1 2\n", "5\n"], "outputs": ["3\n", "5\n"]}),
    },
    {
        "question": "Print each number of lines until 0, doubled.",
        "solutions": json.dumps(
            ["import sys\nfor line in sys.stdin:\n    n = int(line)\n    if n == 0:\n"
             "        exit()\n    print(2 * n)"]
        ),
        "input_output": json.dumps({"inputs": ["1\n2\n0\n9\n"], "outputs": ["2\n4\n"]}),
    },
    {
        "question": "Double the number.",
        "solutions": json.dumps(["class Solution:\n  def double(self, x):\n    return 2 * x"]),
        "starter_code": "class Solution:\n    def double(self, x: int) -> int:\n        ",
        "input_output": json.dumps({"fn_name": "double", "inputs": [[2], [0]], "outputs": [4, 0]}),
    },
    {
        "question": "Add one.",
        "solutions": json.dumps(["def plus_one(x):\n    return x + 1"]),
        "input_output": json.dumps({"fn_name": "plus_one", "inputs": [[2]], "outputs": [[3]]}),
    },
]  # fmt: skip
CODE = {
    "stdin": "n = int(input())\nprint(*(x * x for x in map(int, input().split())))",
    "functional": "class Solution:\n    def total(self, xs):\n        return sum(xs)",
}
LIVECODEBENCH = [
    {
        "question_content": "Print the squares.",
        "public_test_cases": json.dumps(
            [{"input": "2\n3 4\n", "output": "9 16\n", "testtype": "stdin"}]
        ),
    },
    {
        "question_content": "The sum.",
        "starter_code": "class Solution:\n    def total(self, xs: List[int]) -> int:\n        ",
        "metadata": json.dumps({"func_name": "total"}),
        "public_test_cases": json.dumps(
            [{"input": "[1, 2]", "output": "3", "testtype": "functional"}]
        ),
    },
]


def published(name):
    """The path of a published set. Skips where it is not there."""
    folder = Path(os.environ.get("LUDIC_DATA_DIR", Path(__file__).parents[5] / "shared" / "data"))
    if not (folder / name).exists():
        pytest.skip(f"needs the original data in {folder / name}; set LUDIC_DATA_DIR")
    return folder / name


def failed(env, row, texts):
    """The forms of the row's program that earn less than 1."""
    bad = []
    for form, text in texts.items():
        env.reset(options={"row": row})
        _, reward, _, _, info = env.step(text)
        if reward != 1.0:
            bad.append((row, form, info["outcome"], info["message"]))
    return bad


def function_forms(env, row):
    """Every form of the program of the row, and of its body where the task shows the head."""
    env.reset(options={"row": row})
    problem = env.question
    # The name of a class, for a method.
    texts = replies(problem.truth.strip("\n"), getattr(problem.tests, "name", "").split(".")[0])
    head = problem.head
    if head and problem.truth.startswith(head):
        texts |= continuations(problem.truth.removeprefix(head))
    return texts


# 1 of each as part of the quick tests.
@pytest.mark.parametrize(
    ("name", "step"),
    [
        pytest.param("humaneval/HumanEval.jsonl.gz", 41, marks=pytest.mark.long),
        pytest.param("mbppplus/MbppPlus.jsonl.gz", 126, marks=pytest.mark.long),
        pytest.param("humaneval/HumanEval.jsonl.gz", 1, marks=pytest.mark.slow),
        pytest.param("mbppplus/MbppPlus.jsonl.gz", 1, marks=pytest.mark.slow),
    ],
)
def test_published_solutions_pass_in_every_form(name, step):
    path = published(name)
    env = PythonFunctionsEnv(str(path))
    with gzip.open(path, "rt") as lines:
        count = sum(1 for _ in lines)
    bad = [
        miss for row in range(0, count, step) for miss in failed(env, row, function_forms(env, row))
    ]
    assert bad == []


@pytest.mark.long
@pytest.mark.parametrize("row", range(len(APPS)))
def test_solutions_of_apps_pass_in_every_form(rows, row):
    env = StdinStdoutEnv(rows(*APPS))
    assert failed(env, row, function_forms(env, row)) == []


@pytest.mark.long
@pytest.mark.parametrize("row", range(len(LIVECODEBENCH)))
def test_solutions_of_livecodebench_pass_in_every_form(rows, row):
    env = StdinStdoutEnv(rows(*LIVECODEBENCH))
    code, name = CODE["functional" if row else "stdin"], "Solution" if row else ""
    assert failed(env, row, replies(code, name)) == []


def test_a_program_of_input_is_the_last_that_reads_and_prints(rows):
    env = StdinStdoutEnv(rows(*APPS))
    slow = "total = 0\nfor word in input().split():\n    total += int(word)\nprint(total + 1)"
    program = "print(sum(map(int, input().split())))"
    fragment = "numbers = list(map(int, input().split()))  # all the numbers of the only line"
    reply = (
        f"```python\n{slow}\n```\nShorter:\n```python\n{program}\n```\n```python\n{fragment}\n```"
    )
    assert failed(env, 0, {"draft, program, fragment": reply}) == []


def test_helpers_of_earlier_blocks_are_kept(rows):
    env = PythonFunctionsEnv(rows(ADD))
    # The use after it is no helper: it is left out, and ends no program.
    helper = "```python\nimport operator\n\ndef plus(a, b):\n    return operator.add(a, b)\n```"
    program = "```python\ndef add(a, b):\n    return plus(a, b)\n```"
    used = "```python\nprint(add(1, 2))\nraise SystemExit\n```"
    assert failed(env, 0, {"helper": f"{helper}\n{program}\n{used}"}) == []


def test_a_wrong_program_earns_nothing_in_any_form(rows):
    env = PythonFunctionsEnv(rows(ADD))
    for form, text in replies("def add(a, b):\n    return a - b", "add").items():
        env.reset(options={"row": 0})
        assert env.step(text)[1] <= 0.0, form


QUERY = "SELECT name\nFROM pets\nWHERE age > 2;"
SQL = {
    "sql": f"```sql\n{QUERY}\n```",
    "capital": f"```SQL\n{QUERY}\n```",
    "untagged": f"```\n{QUERY}\n```",
    "sqlite3": f"```sqlite3\n{QUERY}\n```",
    "alone": QUERY,
    "without its end": QUERY.rstrip(";"),
    "prose": f"So:\n\n```sql\n{QUERY}\n```\nAlternatively:\n```sql\nSELECT 1\n```",
    "result": f"```sql\n{QUERY}\n```\n```\n| name |\n|------|\n| Rex, the oldest one |\n```",
    "thought": f"<think>```sql\nSELECT 1\n```</think>\n```sql\n{QUERY}\n```",
    "not closed": f"```sql\n{QUERY}",
    "Windows": f"```sql\r\n{QUERY}\r\n```\r\n".replace("\n", "\r\n"),
    "sentence": f"The query is:\n\n{QUERY}\n\nIt filters by age.",
}


@pytest.mark.parametrize("form", SQL)
def test_a_query_is_read_in_every_form(rows, form):
    row = {
        "question": "Which pets are older than 2?",
        "schema": "CREATE TABLE pets (name TEXT, age INT);",
        "data": "INSERT INTO pets VALUES ('Rex', 3), ('Tom', 1);",
        "query": "SELECT name FROM pets WHERE age > 2",
    }
    assert failed(SQLEnv(rows(row)), 0, {form: SQL[form]}) == []
