import copy
import json
import os
import re
from pathlib import Path

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.questions.maths import GSM8K_SAMPLE
from ludic_gym.errors import DataError

ID = "ludic/GSM8K-v0"


@pytest.fixture
def test_rows(project):
    """The 1,319 rows of the original test split, which are not part of the project."""
    folder = Path(os.environ.get("LUDIC_DATA_DIR", project.parent / "shared" / "data"))
    path = folder / "gsm8k" / "test.jsonl"
    if not path.exists():
        pytest.skip(f"needs the original data in {path}; set LUDIC_DATA_DIR")
    return path


def total(env, answer):
    """Rewards summed over all rows; `answer(env, row)` answers."""
    rewards = 0.0
    for row in range(env.unwrapped.num_rows):
        env.reset(options={"row": row})
        rewards += env.step(answer(env.unwrapped, row))[1]
    return rewards


def test_the_bundled_sample_works_out():
    rows = [json.loads(line) for line in GSM8K_SAMPLE.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 20
    assert len({row["question"] for row in rows}) == len(rows)
    for row in rows:
        for sum_, result in re.findall(
            r"(?<![\d.])([-\d.+*/]+[+*/-][\d.]+)=\$?(-?[\d.]+\d|\d)", row["answer"]
        ):
            assert eval(sum_) == pytest.approx(float(result)), row


def test_the_oracle_and_the_written_solutions_are_correct():
    rows = [json.loads(line) for line in GSM8K_SAMPLE.read_text(encoding="utf-8").splitlines()]
    env = gym.make(ID)
    assert total(env, lambda env, row: env.oracle_action()) == len(rows)
    assert total(env, lambda env, row: rows[row]["answer"]) == len(rows)
    assert total(env, lambda env, row: rows[row]["question"]) == 0


def test_a_row_is_asked_by_number_or_drawn_by_seed():
    env = gym.make(ID)
    first, info = env.reset(seed=1, options={"row": 0})
    assert first.startswith("A baker fills 6 trays")
    assert info["row"] == 0
    assert "<answer>" in info["system_prompt"]
    drawn = {env.reset(seed=seed)[1]["row"] for seed in range(400)}
    assert drawn == set(range(env.unwrapped.num_rows))


def test_a_copy_shares_the_rows_and_nothing_else():
    env = gym.make(ID).unwrapped
    env.reset(seed=0)
    twin = copy.deepcopy(env)
    assert twin._questions is env._questions
    env.step("wrong")
    assert twin.step(twin.oracle_action())[1] == 1.0
    assert twin.reset()[0] == env.reset()[0]


@pytest.mark.long
def test_all_of_the_original_test_split_is_graded_right(test_rows):
    rows = [json.loads(line) for line in test_rows.read_text(encoding="utf-8").splitlines()]
    env = gym.make(ID, data=str(test_rows))
    assert env.unwrapped.num_rows == 1319
    assert total(env, lambda env, row: env.oracle_action()) == 1319
    assert total(env, lambda env, row: rows[row]["answer"]) == 1319
    assert total(env, lambda env, row: f"<answer>{env.oracle_action()}</answer>") == 1319


def test_none_of_the_original_test_split_is_right_by_accident(test_rows):
    rows = [json.loads(line) for line in test_rows.read_text(encoding="utf-8").splitlines()]
    env = gym.make(ID, data=str(test_rows))
    assert total(env, lambda env, row: env.oracle_action() + "1") == 0
    assert total(env, lambda env, row: rows[row]["question"]) == 0
    # The solution without its last line names the right number, but marks no answer.
    assert total(env, lambda env, row: rows[row]["answer"].rpartition("####")[0]) == 0


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"question": "How many?", "answer": "many"}', r"rows.jsonl line 2: .*got 'many'"),
        ('{"question": "How many?", "answer": "#### "}', "got ''"),
        ('{"question": "How many?"}', r"line 2: no text in field 'answer' .*\['question'\]"),
        ('{"question": " ", "answer": "#### 3"}', "line 2: no text in field 'question'"),
    ],
)
def test_a_row_without_a_question_or_number_is_named(tmp_path, line, complaint):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"question": "1 + 2?", "answer": "#### 3"}}\n{line}\n')
    with pytest.raises(DataError, match=complaint):
        gym.make(ID, data=str(path))
