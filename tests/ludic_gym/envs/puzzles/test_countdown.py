"""Countdown: expressions and their exact values, puzzles and grades."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.puzzles.countdown import BadExpression, evaluate, grade_countdown, joins
from ludic_gym.errors import ConfigError, DataError, NoOracle


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1+2)*3", 9),
        ("10 - 3 - 2", 5),
        ("24 / 4 / 3", 2),
        ("1 / 3 * 3", 1),
        ("-(2 - 5)", 3),
        ("2 × 3 ÷ 4 − 1", Fraction(1, 2)),
        ("2⋅3", 6),
        ("[1 + 2] * 3", 9),
        (r"$2 \times \left(5 - 3\right)$", 4),
        (r"\(8 \div 2 \cdot 3\)", 12),
    ],
)
def test_values_are_exact(text, value):
    assert evaluate(text).value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        r"2 \times\times 3",
        r"2 \timesx 3",
        r"\frac{4}{2}",
        "1 2",
        "(1",
        "1)",
        "1 / (2 - 2)",
        "2 ** 3",
        "9**9**9",
        "2 // 1",
        "+1",
        "1.5",
        "x",
        "__import__('os')",
        "1e9",
        "1_000",
        "1" * 10,
        "५",
        "²",
        "(" * 199,
        "1+" * 150 + "1",
    ],
)
def test_anything_else_is_no_expression(text):
    with pytest.raises(BadExpression):
        evaluate(text)


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


@pytest.mark.parametrize("kwargs", [{}, {"numbers": 2}, {"numbers": 8}])
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


def data_env(tmp_path, *rows, **kwargs):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return gym.make("ludic/Countdown-v0", data=str(path), **kwargs).unwrapped


def test_rows_are_asked_in_place_of_generated_tasks(tmp_path):
    env = data_env(
        tmp_path, {"nums": [3, 5, 25], "target": 50}, {"nums": [8, 3, 3, 8], "target": 24}
    )
    text, info = env.reset(options={"row": 0})
    assert text == "Numbers: 3 5 25\nTarget: 50"
    assert (env.num_rows, info["row"], info["split"], info["licence"]) == (
        2,
        0,
        "file",
        "not stated",
    )
    assert info["data"].startswith("rows.jsonl@")
    for row in (0, 1):
        # 8 / (3 - 8 / 3) is the only expression of the second row.
        env.reset(options={"row": row})
        assert env.step(env.oracle_action())[1] == 1.0
    assert {env.reset(seed=seed)[1]["row"] for seed in range(20)} == {0, 1}


def test_a_row_without_an_expression_has_no_oracle(tmp_path):
    env = data_env(tmp_path, {"n": "[1, 1]", "t": "7"}, fields={"numbers": "n", "target": "t"})
    env.reset()
    with pytest.raises(NoOracle, match="no expression is known for '1 1 = 7'"):
        env.oracle_action()


@pytest.mark.parametrize(
    "change",
    [{"nums": [1]}, {"nums": [1, 2.5]}, {"nums": [1, True]}, {"nums": 5}, {"target": None},
     {"nums": [1, -2]}, {"nums": [1] * 9}, {"target": "x"}, {"nums": [1, 10**9]}],
)  # fmt: skip
def test_a_row_without_numbers_or_target_is_refused(change, tmp_path):
    row = {"nums": [1, 2], "target": 3}
    with pytest.raises(DataError, match=r"1 of 2 rows .*line 2: 'numbers' must be 2 to 8 whole"):
        data_env(tmp_path, row, {**row, **change})


def test_fields_without_data_and_a_sample_of_generated_tasks_are_refused():
    with pytest.raises(ConfigError, match="fields= names columns of data="):
        gym.make("ludic/Countdown-v0", fields={"numbers": "n"})
    with pytest.raises(ConfigError, match="generated: leave data= out"):
        gym.make("ludic/Countdown-v0", data="sample")
