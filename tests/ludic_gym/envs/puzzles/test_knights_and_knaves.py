import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.puzzles.knights_and_knaves import (
    about_one,
    about_two,
    grade_kinds,
    solutions,
)

ID = "ludic/KnightsAndKnaves-v0"
TRUTH = "knave, knight, knave"


def test_the_puzzle_of_the_docstring_has_its_solution():
    said = [about_one(1)[1], about_two(0, 2)[0], about_one(0)[0]]
    assert [text for text, _ in said] == [
        "Bob is a knave",
        "Ann and Cy are of the same kind",
        "Ann is a knight",
    ]
    assert solutions(said) == [(False, True, False)]


def test_who_calls_each_other_knave_has_two_solutions():
    assert solutions([about_one(1)[1], about_one(0)[1]]) == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("<answer>knave, knight, knave</answer>", True),
        ("<answer>Ann is a Knave, Bob a KNIGHT and Cy a knave.</answer>", True),
        ("knave knight knave", True),
        ("<answer>Ann is not a knight, Bob is a knight, Cy isn't a knight</answer>", True),
        ("<answer>Ann is not a knave, Bob is a knight, Cy is a knave</answer>", False),
        ("<answer>not knight, not a KNAVE, never a knight</answer>", True),
        ("<answer>knave, knight (I am not sure), knave</answer>", True),
        ("<answer>knave, knight</answer>", False),
        ("<answer>knave, knight, knave, knight</answer>", False),
        ("<answer>knight, knave, knight</answer>", False),
        ("<answer>knave, knight, knave</answer><answer>knight, knave, knave</answer>", False),
        ("<answer></answer>", False),
        ("", False),
    ],
)
def test_the_kinds_count_in_order(text, correct):
    assert grade_kinds(text, TRUTH).correct is correct


@pytest.mark.parametrize("people", [2, 3, 6])
def test_everybody_says_one_thing_about_others(people):
    env = gym.make(ID, people=people)
    for seed in range(30):
        text, _ = env.reset(seed=seed)
        assert len(text.splitlines()) == people
        assert env.unwrapped.oracle_action().count("kn") == people
        assert env.step(env.unwrapped.oracle_action())[1] == 1.0
