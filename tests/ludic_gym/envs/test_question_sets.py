import json
from collections import Counter

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.maths import MATHEnv
from ludic_gym.envs.multiple_choice import MultipleChoiceEnv
from ludic_gym.envs.short_answer import ShortAnswerEnv
from ludic_gym.errors import ConfigError, DataError


def file_of(path, *rows):
    path = path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


@pytest.mark.parametrize("env_id", ["ludic/MATH-v0", "ludic/MultipleChoice-v0"])
def test_the_oracle_answers_every_bundled_question(env_id):
    env = gym.make(env_id).unwrapped
    assert env.num_rows == 20
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


def test_a_choice_reads_line_by_line(tmp_path):
    data = file_of(tmp_path, {"question": "Which?", "choices": ["x", "y"], "answer": 1})
    env = MultipleChoiceEnv(data)
    text, _ = env.reset(seed=0)
    assert text in ("Which?\nA. x\nB. y", "Which?\nA. y\nB. x")
    assert f"{env.oracle_action()}. y" in text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"choices": "xy"}, "must be a list of texts"),
        ({"choices": ["x"]}, "2 to 26 different texts"),
        ({"choices": ["x", "x"]}, "2 to 26 different texts"),
        ({"answer": 2}, "from 0 to 1, got 2"),
        ({"answer": "A"}, "from 0 to 1, got 'A'"),
    ],
)
def test_a_row_without_a_right_choice_is_refused(tmp_path, change, complaint):
    row = {"question": "Which?", "choices": ["x", "y"], "answer": 1, **change}
    with pytest.raises(DataError, match=f"rows.jsonl line 1: .*{complaint}"):
        MultipleChoiceEnv(file_of(tmp_path, row))


def test_problems_are_chosen_by_level_and_subject():
    env = MATHEnv(level=2, subject="Geometry")
    # The circle, the triangle and the distance.
    assert env.num_rows == 3
    with pytest.raises(ConfigError, match=r"no problem has level=5 .* Algebra"):
        MATHEnv(level=5)


def test_the_rule_says_how_an_expression_was_compared():
    env = MATHEnv()
    env.reset(options={"row": 0})
    info = env.step(r"\boxed{\frac{38}{24}}")[4]
    assert (info["success"], info["rule"]) == (True, "boxed, exact")


@pytest.mark.parametrize("change", [{"level": 0}, {"level": "2"}, {"answer": " "}, {"subject": 1}])
def test_a_problem_without_answer_level_or_subject_is_refused(tmp_path, change):
    row = {"problem": "1+1?", "answer": "2", "level": 1, "subject": "Algebra", **change}
    with pytest.raises(DataError, match=f"line 1: .*{next(iter(change))}"):
        MATHEnv(file_of(tmp_path, row))


def test_any_accepted_answer_is_right():
    env = ShortAnswerEnv()
    for text in ("<answer>the Nile</answer>", "nile river"):
        env.reset(options={"row": 3})
        assert env.step(text)[1] == 1.0
    env.reset(options={"row": 3})
    assert env.step("<answer>Nile or Amazon</answer>")[1] == 0.0


@pytest.mark.parametrize("answers", [[], "Nile", ["the"], None])
def test_a_question_without_an_answer_is_refused(tmp_path, answers):
    with pytest.raises(DataError, match=r"rows.jsonl line 1: "):
        ShortAnswerEnv(file_of(tmp_path, {"question": "Which river?", "answers": answers}))
