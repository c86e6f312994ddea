import pytest

import ludic_gym  # noqa: F401 - makes the ids known
from envs_registry.catalog import SUITES
from ludic_gym.bench.evaluation import named_envs
from ludic_gym.bench.runner import bench_tasks
from ludic_gym.errors import ConfigError

QUESTIONS = (
    '{"question": "1 + 1?", "answer": "#### 2"}\n{"question": "2 + 2?", "answer": "#### 4"}\n'
)


@pytest.fixture
def two_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(QUESTIONS)
    return {"data": str(path)}


def test_a_dataset_is_played_once_row_by_row(two_rows):
    tasks = bench_tasks("ludic/GSM8K-v0", kwargs=two_rows, seed=7)
    assert [task.options for task in tasks] == [{"row": 0}, {"row": 1}]
    assert [task.seed for task in tasks] == [7, 8]


def test_more_episodes_than_rows_start_over_with_new_seeds(two_rows):
    tasks = bench_tasks("ludic/GSM8K-v0", kwargs=two_rows, episodes=3)
    assert [task.options for task in tasks] == [{"row": 0}, {"row": 1}, {"row": 0}]
    assert [task.seed for task in tasks] == [0, 1, 2]


def test_a_procedural_env_plays_a_hundred_seeds():
    tasks = bench_tasks("ludic/Arithmetic-v0", seed=1000)
    assert [task.seed for task in tasks] == list(range(1000, 1100))
    assert all(task.options is None for task in tasks)


def test_the_env_says_how_many_attempts_there_are_unless_the_caller_does():
    (own,) = bench_tasks("ludic/Arithmetic-v0", episodes=1)
    (given,) = bench_tasks("ludic/Arithmetic-v0", episodes=1, max_turns=9, attempts=3)
    assert (own.max_turns, own.attempts) == (1000, None)
    assert (given.max_turns, given.attempts) == (9, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("episodes", 0), ("episodes", -1), ("seed", -1), ("max_turns", 0), ("attempts", 0)],
)
def test_numbers_that_cannot_be_played_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name} must be at least .*, got {value}"):
        bench_tasks("ludic/Arithmetic-v0", **{name: value})


def test_a_suite_stands_for_its_environments_with_their_real_splits():
    named = named_envs(["core", "ludic/ConnectFour-v0"])
    assert tuple(named) == (*SUITES["core"], "ludic/ConnectFour-v0")
    assert named["ludic/GSM8K-v0"] == {"split": "test"}
    assert named["ludic/Countdown-v0"] == named["ludic/ConnectFour-v0"] == {}
