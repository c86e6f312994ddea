"""Guess the Number and Mastermind."""

from __future__ import annotations

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.guessing import all_codes, hint

ID = "ludic/GuessTheNumber-v0"


def hidden(number, **kwargs):
    env = gym.make(ID, **kwargs)
    env.reset(seed=0)
    env.unwrapped.number = number
    return env


def test_every_guess_is_answered_by_the_direction_and_the_range_that_is_left():
    env = hidden(30)
    assert env.step("50")[0] == "50 is too high. The number is from 1 to 49. Guesses left: 6."
    assert env.step(" 25\n")[0] == "25 is too low. The number is from 26 to 49. Guesses left: 5."
    # A guess out of the range that is left does not widen it.
    assert env.step("90")[0] == "90 is too high. The number is from 26 to 49. Guesses left: 4."
    text, reward, terminated, _, info = env.step("30")
    assert text == "30 is correct."
    assert (reward, terminated, info["outcome"]) == (1.0, True, "win")


@pytest.mark.parametrize(
    "action", ["0", "101", "-5", "5.0", "five", "", "5 6", "²", "५", "9" * 9999]
)
def test_what_is_no_number_of_the_range_is_illegal(action):
    assert hidden(30).step(action)[4]["illegal"]


@pytest.mark.parametrize(("high", "turns"), [(2, 2), (3, 2), (7, 3), (8, 4), (100, 7), (9999, 14)])
def test_halving_finds_every_number_within_the_turns(high, turns):
    for number in range(1, high + 1, max(high // 50, 1)):
        env = hidden(number, high=high)
        assert env.unwrapped.turns_left == turns
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.unwrapped.oracle_action())
        assert reward == 1.0


MASTERMIND = "ludic/Mastermind-v0"


@pytest.mark.parametrize(
    ("guess", "code", "expected"),
    [
        ("AABB", "AABB", (4, 0)),
        ("AABB", "BBAA", (0, 4)),
        ("AABB", "CCDD", (0, 0)),
        # One A is right; the guess's other A has no partner, the code's B is elsewhere.
        ("AACD", "ABBC", (1, 1)),
        ("AAAA", "ABCD", (1, 0)),
    ],
)
def test_letters_are_counted_once(guess, code, expected):
    assert hint(guess, code) == expected


def test_a_game_step_by_step():
    env = gym.make(MASTERMIND)
    env.reset(seed=0)
    env.unwrapped.code = "ACAD"
    hint = "AABB: 1 in the right place, 1 elsewhere in the code"
    assert env.step("aabb")[0] == f"{hint}. You have 9 guesses left."
    # The picture has all guesses, an observation the last one only.
    text, reward, terminated, _, info = env.step("ACAD")
    last = "ACAD: 4 in the right place, 0 elsewhere in the code"
    assert text == f"{last}. You have 8 guesses left."
    assert env.unwrapped.picture() == f"{hint}\n{last}\nYou have 8 guesses left."
    assert (reward, terminated, info["success"]) == (1.0, True, True)


@pytest.mark.parametrize("action", ["AAA", "AAAAA", "AAAG", "A A A A", "", "ſſſſ"])
def test_what_is_no_code_is_illegal(action):
    env = gym.make(MASTERMIND)
    env.reset(seed=0)
    assert env.step(action)[4]["illegal"]


def test_the_oracle_needs_at_most_nine_guesses():
    env = gym.make(MASTERMIND).unwrapped
    for code in all_codes("ABCDEF", 4)[::37]:
        env.reset(seed=0)
        env.code = code
        turns, over = 0, False
        while not over:
            _, reward, over, _, _ = env.step(env.oracle_action())
            turns += 1
        assert (reward, turns <= 9) == (1.0, True)
