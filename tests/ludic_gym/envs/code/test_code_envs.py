import asyncio

import gymnasium as gym
import pytest
from code_rows import ADD, answer

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.code.programs import PythonFunctionsEnv, StdinStdoutEnv
from ludic_gym.envs.code.sql import SQLEnv
from ludic_gym.envs.core import code as base
from ludic_gym.errors import NoSandbox, SandboxError
from ludic_gym.policies.reference import ScriptedPolicy
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.sandbox.choice import shared_sandbox
from ludic_gym.types import Task

pytestmark = pytest.mark.usefixtures("a_sandbox")
ENVS = [PythonFunctionsEnv, StdinStdoutEnv, SQLEnv]


@pytest.mark.long
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", ENVS)
def test_a_bundled_problem_is_solved_by_its_own_solution(make, every):
    env = make()
    for row in range(0, env.num_rows, every):
        env.reset(seed=0, options={"row": row})
        over = False
        while not over:
            _, reward, over, _, info = env.step(env.oracle_action())
        assert (reward, info["success"]) == (1.0, True), (row, info)


@pytest.mark.parametrize(
    ("action", "reward", "outcome"),
    [
        ("def add(a, b): return a + b", 1.0, "passed"),
        ("Here it is:\n```python\ndef add(a, b): return a + b\n```\nEnjoy.", 1.0, "passed"),
        ("<think>```python\n1\n```</think>```\ndef add(a, b): return a + b\n```", 1.0, "passed"),
        ("def add(a, b): return a", 0.0, "wrong"),
        ("def add(a, b) return a", -0.1, "syntax"),
        ("I cannot", -0.1, "syntax"),
        ("", -0.1, "empty"),
        ("```python\n```", -0.1, "empty"),
        ("def sub(a, b): return a", 0.0, "missing"),
    ],
)
def test_a_reply_earns_what_its_program_is_worth(rows, action, reward, outcome):
    earned, info = answer(PythonFunctionsEnv(rows(ADD)), action)
    assert (earned, info["outcome"]) == (reward, outcome)
    assert sum(v for k, v in info.items() if k.startswith("reward/")) == earned


def test_partial_credit_is_the_share_of_the_tests(rows):
    # Of 1 + 2, 0 + 0, -1 + 1 and 5 + 5 only the second and the third are 0.
    earned, info = answer(
        PythonFunctionsEnv(rows(ADD), partial_credit=True), "def add(a, b): return 0"
    )
    assert (earned, info["success"], info["passed"], info["total"]) == (0.5, False, 2, 4)


def test_the_first_and_the_last_info_say_what_the_sandbox_guarantees():
    env = PythonFunctionsEnv()
    _, info = env.reset(seed=0)
    assert info["sandbox"].startswith(f"{shared_sandbox('auto').name}: network, filesystem")
    assert base.sandbox_text(
        "process", base.Guarantees(**dict.fromkeys(base.Guarantees.__slots__, False))
    ) == ("process: no protection")
    *_, last = env.step(env.oracle_action())
    assert last["sandbox"] == info["sandbox"]


@pytest.mark.parametrize("make", ENVS)
def test_without_a_sandbox_it_is_made_and_says_at_the_first_reset_what_to_install(
    make, monkeypatch
):
    def none(name, *, allow_unsafe=False):
        raise NoSandbox("no sandbox works here; allow user namespaces")

    env = make()
    monkeypatch.setattr(base, "grader_for", none)
    with pytest.raises(NoSandbox, match="allow user namespaces"):
        env.reset(seed=0)


class BrokenSandbox:
    """A sandbox that never starts."""

    name, guarantees = "broken", base.Guarantees(**dict.fromkeys(base.Guarantees.__slots__, True))

    async def start(self, program, **options):
        raise SandboxError("the disk is full")


def test_a_sandbox_that_fails_truncates_the_episode_with_the_error_and_no_penalty(rows):
    env = PythonFunctionsEnv(rows(ADD), sandbox=BrokenSandbox())
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step("def add(a, b): return 0")
    assert (text, reward, terminated, truncated) == ("", 0.0, False, True)
    assert info["error"] == "SandboxError: the disk is full"
    assert (info["outcome"], info["success"]) == ("error", False)


def test_an_episode_whose_sandbox_failed_arrives_as_failed(rows):
    gym.register(
        "test/Broken-v0", lambda **kwargs: PythonFunctionsEnv(rows(ADD), sandbox=BrokenSandbox())
    )
    task = Task(env_id="test/Broken-v0", seed=0)

    async def play():
        return [e async for e in run_episodes([task], lambda env: ScriptedPolicy(["x = 1"]))]

    (episode,) = asyncio.run(play())
    assert episode.error == "EpisodeError: SandboxError: the disk is full"
    assert episode.rollouts == ()


def test_the_comparator_decides_about_white_space_and_numbers(rows):
    row = {"prompt": "p", "cases": [["", "1.0 2\n"]]}
    path, exact = rows(row), rows({**row, "comparator": "exact"})
    assert answer(StdinStdoutEnv(path), "print('1.0\\n2')")[0] == 1.0
    assert answer(StdinStdoutEnv(exact), "print('1.0\\n2')")[0] == 0.0
    assert answer(StdinStdoutEnv(path), "print(1, 2)")[0] == 0.0
    numbers = rows({**row, "comparator": "numbers"})
    assert answer(StdinStdoutEnv(numbers), "print(1, 2)")[0] == 1.0


DATABASE = {
    "question": "Which names?",
    "schema": "CREATE TABLE t (name TEXT, x REAL);",
    "data": "INSERT INTO t VALUES ('a', 0.1), ('b', 0.2), ('b', 0.3);",
    "query": "SELECT name FROM t",
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("query", "reward", "outcome"),
    [
        ("SELECT name FROM t", 1.0, "passed"),
        ("```sql\nselect name as other from t order by name desc;\n```", 1.0, "passed"),
        ("SELECT DISTINCT name FROM t", 0.0, "wrong"),
        ("SELECT name, x FROM t", 0.0, "wrong"),
        ("SELEC name", -0.1, "syntax"),
        ("SELECT missing FROM t", 0.0, "raised"),
        ("DELETE FROM t", 0.0, "raised"),
        ("DROP TABLE t", 0.0, "raised"),
        ("ATTACH '/tmp/x' AS y", 0.0, "raised"),
        ("PRAGMA query_only = 0", 0.0, "raised"),
        ("SELECT name FROM t; SELECT name FROM t", 0.0, "raised"),
        ("SELECT load_extension('x')", 0.0, "raised"),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
            0.0,
            "wrong",
        ),
        (
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
            0.0,
            "timeout",
        ),
        ("SELECT hex(randomblob(1000000000))", 0.0, "raised"),
    ],
)
def test_a_query_earns_what_its_rows_are_worth(rows, query, reward, outcome):
    earned, info = answer(SQLEnv(rows(DATABASE), cpu_s=1.0), query)
    assert (earned, info["outcome"]) == (reward, outcome), info


def test_the_order_of_rows_counts_where_the_row_says_so(rows):
    env = SQLEnv(rows({**DATABASE, "query": "SELECT x FROM t ORDER BY x", "ordered": True}))
    assert answer(env, "SELECT x + 1e-15 FROM t ORDER BY x")[0] == 1.0
    assert answer(env, "SELECT x FROM t ORDER BY x DESC")[0] == 0.0
