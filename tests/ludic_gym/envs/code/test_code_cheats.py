"""No program earns more than its answers are worth."""

import importlib.util
import json
from pathlib import Path

import pytest
from cheats import CHEATS, ONE_OF_EACH_KIND, PRETENDERS

from ludic_gym.envs.code.programs import PythonFunctionsEnv, StdinStdoutEnv
from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.choice import shared_sandbox

_HERE = Path(__file__).parent / "reward_cheats.py"
_SPEC = importlib.util.spec_from_file_location("reward_cheats", _HERE)
reward_cheats = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(reward_cheats)

RIGHT = "def f(x):\n    return 2 * x"
BY_CALLS = {"name": "f", "calls": [[2], [0], [-3]], "expected": [4, 0, -6]}
CHECK = "def check(f):\n    assert f(2) == 4, 'expected 4'\n    assert abs(f(-3) + 6) < 1e-6"
BY_ASSERTS = {"name": "f", "tests": [f"{CHECK}\ncheck(candidate)", "assert f(1.5) == 3"]}


@pytest.fixture(scope="module", autouse=True)
def _sandbox():
    try:
        shared_sandbox("auto")
    except NoSandbox as error:
        pytest.skip(str(error))


# Those who never end are waited for: not long.
TIGHT = {"cpu_s": 0.25, "memory_mb": 256}


@pytest.fixture(scope="module")
def row_file(tmp_path_factory):
    def write(row):
        path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
        path.write_text(json.dumps({"prompt": "Double it.", "solution": RIGHT, **row}))
        return str(path)

    return write


@pytest.fixture(scope="module", params=[BY_CALLS, BY_ASSERTS], ids=["calls", "asserts"])
def functions(request, row_file):
    return PythonFunctionsEnv(row_file(request.param), partial_credit=True, **TIGHT)


@pytest.fixture(scope="module")
def asserted(row_file):
    return PythonFunctionsEnv(row_file(BY_ASSERTS), partial_credit=True, **TIGHT)


@pytest.fixture(scope="module")
def programs(row_file):
    cases = [["2\n", "4\n"], ["0\n", "0\n"], ["-3\n", "-6\n"]]
    return StdinStdoutEnv(row_file({"cases": cases}), **TIGHT)


def played(env, program):
    env.reset(seed=0)
    return env.step(f"```python\n{program}\n```")


@pytest.mark.long
@pytest.mark.parametrize("name", reward_cheats.FUNCTIONS)
def test_no_function_earns_what_its_results_are_not_worth(functions, name):
    _, reward, terminated, truncated, info = played(functions, reward_cheats.FUNCTIONS[name])
    assert (terminated, truncated, info["success"]) == (True, False, False), info
    assert reward <= 0, info


@pytest.mark.parametrize("name", reward_cheats.PROGRAMS)
def test_no_program_earns_what_its_output_is_not_worth(programs, name):
    _, reward, terminated, truncated, info = played(programs, reward_cheats.PROGRAMS[name])
    assert (terminated, truncated, info["success"]) == (True, False, False), info
    assert reward <= 0, info


# test_sandbox_cheats.py has them all.
HARMFUL = [
    pytest.param(name, marks=() if name in (*ONE_OF_EACH_KIND, *PRETENDERS) else pytest.mark.slow)
    for name in CHEATS
]


@pytest.mark.long
@pytest.mark.parametrize("name", HARMFUL)
def test_no_program_that_harms_the_sandbox_earns_anything(asserted, name):
    program = f"{CHEATS[name]}\ndef f(x):\n    return -1"
    _, reward, terminated, _, info = played(asserted, program)
    assert terminated, info
    assert reward <= 0, info


@pytest.mark.parametrize("row", [BY_CALLS, BY_ASSERTS], ids=["calls", "asserts"])
def test_after_all_that_a_right_function_earns_its_reward(row, row_file):
    assert played(PythonFunctionsEnv(row_file(row)), RIGHT)[1] == 1.0


def test_after_all_that_a_right_program_earns_its_reward(row_file):
    env = StdinStdoutEnv(row_file({"cases": [["2\n", "4\n"]]}))
    assert played(env, "print(2 * int(input()))")[1] == 1.0
