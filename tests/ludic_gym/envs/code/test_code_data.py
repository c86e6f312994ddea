"""HumanEval and MBPP+ through the environment, where they are at hand: `pytest -m slow`."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ludic_gym.envs.code.programs import PythonFunctionsEnv

SETS = [("humaneval/HumanEval.jsonl.gz", 164), ("mbppplus/MbppPlus.jsonl.gz", 378)]
WRONG = """
def off(value):
    if value is None or isinstance(value, bool): return not value
    if isinstance(value, (int, float, complex)): return value + 1
    if isinstance(value, str): return value + "x"
    if isinstance(value, (list, tuple)): return value + type(value)([0])
    if isinstance(value, (set, frozenset)): return value | {{"x"}}
    if isinstance(value, dict): return {{**value, "x": 0}}
    return None
right_{name} = {name}
def {name}(*a, **k): return off(right_{name}(*a, **k))
"""


@pytest.fixture(params=SETS, ids=["humaneval", "mbppplus"])
def data_set(request, project):
    folder = Path(os.environ.get("LUDIC_DATA_DIR", project.parent / "shared" / "data"))
    path = folder / request.param[0]
    if not path.exists():
        pytest.skip(f"needs the original data in {path}; set LUDIC_DATA_DIR")
    return str(path), request.param[1]


def rewards(path, change):
    """Rewards of each problem's own solution after the change."""

    def played(row):
        env = PythonFunctionsEnv(path, cpu_s=20.0)
        env.reset(seed=0, options={"row": row})
        solution = env.question.truth + change.format(name=env.question.tests.name)
        _, reward, terminated, _, info = env.step(solution)
        assert terminated, info
        return reward

    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(played, range(PythonFunctionsEnv(path).num_rows)))


@pytest.mark.slow
def test_every_canonical_solution_passes(data_set):
    path, count = data_set
    assert rewards(path, "") == [1.0] * count


@pytest.mark.slow
def test_no_solution_that_is_off_by_a_little_passes(data_set):
    path, count = data_set
    assert rewards(path, WRONG) == [0.0] * count
