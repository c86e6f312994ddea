from collections import Counter

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.puzzles.countdown import evaluate, grade_countdown, joins

ID = "ludic/Countdown-v0"
TRUTH = "3 5 25 7 = 50"


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("<answer>25 * (5 - 3)</answer>", True),
        ("25 * (5 - 3)", True),
        ("<think>25 * 2</think> <answer>25*(5-3) = 50</answer>", True),
        (r"\boxed{(5 - 3) * 25}", True),
        (r"\boxed{25 \times (5 - 3)}", True),
        ("<answer>25 + 25</answer>", False),
        ("<answer>50</answer>", False),
        ("<answer>25 * 3 - 5 * 5</answer>", False),
        ("<answer>25 * 7</answer>", False),
        ("<answer>25*(5-3)</answer> or <answer>25*3</answer>", False),
        ("<think>25*(5-3)", False),
        ("", False),
        ("<answer>= 50</answer>", False),
    ],
)
def test_each_number_counts_once_and_the_target_must_be_met(text, correct):
    assert grade_countdown(text, TRUTH).correct is correct


def test_the_rule_and_the_expression_are_told():
    grade = grade_countdown("#### 3 + 5", TRUTH)
    assert (grade.correct, grade.answer, grade.rule) == (False, "3 + 5", "hashes")


@pytest.mark.parametrize("kwargs", [{}, {"numbers": 2}, {"numbers": 8, "largest": 100}])
def test_every_puzzle_has_the_solution_that_the_oracle_tells(kwargs):
    env = gym.make(ID, **kwargs)
    for seed in range(100):
        text, _ = env.reset(seed=seed)
        given, target = (line.partition(": ")[2] for line in text.splitlines())
        solution = env.unwrapped.oracle_action()
        found = evaluate(solution.removeprefix("<answer>").removesuffix("</answer>"))
        assert found.value == int(target) > 0
        assert Counter(found.numbers) == Counter(map(int, given.split()))
        assert env.step(solution)[1] == 1.0


def test_two_numbers_join_into_positive_whole_numbers():
    assert joins((3, "3"), (6, "6")) == [
        (9, "(6 + 3)"),
        (18, "(6 * 3)"),
        (3, "(6 - 3)"),
        (2, "(6 / 3)"),
    ]
    assert [value for value, _ in joins((5, "5"), (5, "5"))] == [10, 25, 1]
    assert [value for value, _ in joins((5, "5"), (3, "3"))] == [8, 15, 2]
