"""Questions of data sets: GSM8K, MATH, choices and short answers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.questions.maths import GSM8K_SAMPLE, MATHEnv, last_box
from ludic_gym.envs.questions.multiple_choice import MultipleChoiceEnv
from ludic_gym.envs.questions.short_answer import ShortAnswerEnv
from ludic_gym.errors import ConfigError, DataError

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


def file_of(path, *rows):
    path = path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


@pytest.mark.parametrize("env_id", ["ludic/MATH-v0", "ludic/MultipleChoice-v0"])
def test_the_oracle_answers_every_bundled_question(env_id):
    env = gym.make(env_id).unwrapped
    assert env.num_rows >= 50
    for row in range(env.num_rows):
        env.reset(options={"row": row})
        assert env.step(env.oracle_action())[1] == 1.0


def test_options_are_shuffled_by_the_seed_and_every_letter_is_right_in_turn():
    env = gym.make("ludic/MultipleChoice-v0").unwrapped
    truths = Counter()
    for seed in range(400):
        env.reset(seed=seed)
        truths[env.oracle_action()] += 1
    # 100 each is expected, with a standard deviation of 9.
    assert set(truths) == set("ABCD")
    assert min(truths.values()) > 60


@pytest.mark.parametrize(
    "option",
    ["Both A and B", "A and C", "A, B and C only", "Neither (A) nor (B).", "Both A and B are true"],
)
def test_options_that_name_letters_keep_the_order(tmp_path, option):
    row = {"question": "Which?", "choices": ["x", "y", "z", option], "answer": 3}
    env = MultipleChoiceEnv(file_of(tmp_path, row))
    for seed in range(8):
        text, _ = env.reset(seed=seed)
        assert text == f"Which?\nA. x\nB. y\nC. z\nD. {option}"
        assert env.oracle_action() == "D"


@pytest.mark.parametrize("option", ["Vitamins A and D", "B", "E and F", "x and y", "A and Beta"])
def test_other_options_are_shuffled_though_they_have_letters(tmp_path, option):
    row = {"question": "Which?", "choices": ["x", "y", "z", option], "answer": 3}
    env = MultipleChoiceEnv(file_of(tmp_path, row))
    truths = set()
    for seed in range(40):
        env.reset(seed=seed)
        truths.add(env.oracle_action())
    assert truths == set("ABCD")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"choices": "xy"}, "must be a list of texts"),
        ({"choices": ["x"]}, "2 to 26 different texts"),
        ({"choices": ["x", "x"]}, "2 to 26 different texts"),
        ({"answer": 2}, "from 0 to 1 or a letter from A to B, .* got 2"),
        ({"answer": ["1", 0]}, "got "),
        ({"answer": "9"}, "got '9'"),
        ({"answer": "C"}, "got 'C'"),
        ({"answer": "AB"}, "got 'AB'"),
        ({"answer": ""}, "got ''"),
        ({"answer": True}, "got True"),
    ],
)
def test_a_row_without_a_right_choice_is_refused(tmp_path, change, complaint):
    row = {"question": "Which?", "choices": ["x", "y"], "answer": 1, **change}
    with pytest.raises(DataError, match=f"rows.jsonl line 1: .*{complaint}"):
        MultipleChoiceEnv(file_of(tmp_path, row))


def test_problems_are_chosen_by_level():
    every = MATHEnv().num_rows
    assert sum(MATHEnv(level=level).num_rows for level in range(1, 6)) == every
    with pytest.raises(ConfigError, match="no problem has level=7"):
        MATHEnv(level=7)


def test_any_accepted_answer_is_right():
    env = ShortAnswerEnv()
    for text in ("<answer>the Nile</answer>", "nile river"):
        env.reset(options={"row": 3})
        assert env.step(text)[1] == 1.0
    env.reset(options={"row": 3})
    assert env.step("<answer>Nile or Amazon</answer>")[1] == 0.0


@pytest.mark.parametrize("answers", [[], "?!", ["?!"], None, {}])
def test_a_question_without_an_answer_is_refused(tmp_path, answers):
    with pytest.raises(DataError, match=r"rows.jsonl line 1: "):
        ShortAnswerEnv(file_of(tmp_path, {"question": "Which river?", "answers": answers}))


def test_letters_and_doubled_options_of_published_rows_are_understood(tmp_path):
    row = {"question": "Which?", "choices": ["x", "y", "x"], "answer": "C"}
    env = MultipleChoiceEnv(file_of(tmp_path, row))
    text, _ = env.reset(seed=0)
    assert sorted(text.splitlines()[1:], key=lambda line: line[3:])[0][3:] == "x"
    assert len(text.splitlines()) == 3
    assert f"{env.oracle_action()}. x" in text


def test_a_row_of_gpqa_is_a_choice_of_four(tmp_path):
    wrong = {f"Incorrect Answer {i}": f"no {i}\n" for i in (1, 2, 3)}
    data = file_of(tmp_path, {"Question": " Which? ", "Correct Answer": "yes\n", **wrong})
    env = MultipleChoiceEnv(data)
    text, _ = env.reset(seed=0)
    assert sorted(line[3:] for line in text.splitlines()[1:]) == ["no 1", "no 2", "no 3", "yes"]
    assert f"{env.oracle_action()}. yes" in text


def test_a_problem_of_the_original_is_read_with_its_boxed_answer(tmp_path):
    solution = r"First \boxed{1}, no: so $x = \boxed{\frac{1}{2}}$."
    row = {"problem": "?", "solution": solution, "level": "Level 4", "type": "Algebra"}
    env = MATHEnv(file_of(tmp_path, row, {**row, "level": "Level ?"}), level=4)
    assert env.num_rows == 1
    env.reset()
    assert env.oracle_action() == r"\boxed{\frac{1}{2}}"


@pytest.mark.parametrize(
    ("solution", "answer"),
    [(r"\boxed 5.", "5"), (r"$\fbox{a^{2}}$", "a^{2}"), (r"$\boxed 7$", "7"), ("5", "")],
)
def test_the_last_box_of_a_solution_is_found_in_every_form(solution, answer):
    assert last_box(solution) == answer


def test_a_solution_without_a_box_is_refused(tmp_path):
    row = {"problem": "?", "solution": "It is 5.", "level": 1, "type": "Algebra"}
    with pytest.raises(DataError, match=r"line 2: .*no answer in \\boxed"):
        MATHEnv(file_of(tmp_path, {**row, "solution": r"\boxed{5}"}, row))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_maths_is_trained_on_without_the_problems_of_its_test(tmp_path, monkeypatch):
    pytest.importorskip("datasets", reason="needs the extra `data`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    row = {"solution": r"\boxed{5}", "level": "Level 1", "type": "Algebra"}
    for name, split, problems in [
        ("qwedsacf/competition_math", "train", ["a", "b", "c"]),
        ("HuggingFaceH4/MATH-500", "test", ["b"]),
    ]:
        folder = tmp_path / name / "data"
        folder.mkdir(parents=True)
        lines = [json.dumps({**row, "problem": problem}) for problem in problems]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    env = MATHEnv(split="train")
    assert [env.reset(options={"row": i})[0] for i in range(env.num_rows)] == ["a", "c"]


@pytest.mark.parametrize("env_id", ["GSM8K", "MATH", "MultipleChoice", "ShortAnswer"])
def test_the_sample_says_everywhere_that_it_is_one(env_id):
    env = gym.make(f"ludic/{env_id}-v0")
    assert f"<{env_id}Env sample, " in repr(env)
    first, last = env.reset(seed=0)[1], env.step("")[4]
    for info in (first, last):
        assert info["split"] == "sample"
        assert info["data"].startswith("sample@")
        assert info["licence"] == "Apache-2.0"


def test_a_file_says_everywhere_which_it_is(tmp_path):
    row = {"question": "1+1?", "answer": "#### 2"}
    env = gym.make("ludic/GSM8K-v0", data=file_of(tmp_path, row))
    _, info = env.reset()
    assert (info["split"], info["licence"]) == ("file", "not stated")
    assert re.fullmatch(r"rows\.jsonl@[0-9a-f]{16}", info["data"])
    assert f"<GSM8KEnv {info['data']}, 1 rows>" in repr(env)


ASKS = """
import warnings
import gymnasium as gym
import ludic_gym as lg
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    gym.make("ludic/GSM8K-v0", data="sample")
    for name in ("GSM8K", "GSM8K", "SQL"):
        gym.make(f"ludic/{name}-v0")
for each in seen:
    print(each.category is lg.SampleWarning, each.message)
"""


@pytest.mark.program
def test_an_id_that_asks_home_made_questions_says_so_once_unless_they_are_named():
    # A process of its own: it is said once in each.
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "True these are 53 home-made questions (gsm8k_sample.jsonl): "
        'split="test" has those of openai/gsm8k, data="sample" these',
        "True these are 30 home-made questions (sql_sample.jsonl): "
        'data="rows.jsonl" has others, data="sample" these',
    ]
