import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)

ID = "ludic/GuessTheNumber-v0"


def hidden(number, **kwargs):
    env = gym.make(ID, **kwargs)
    env.reset(seed=0)
    env.unwrapped._number = number
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


def test_all_numbers_are_legal_and_drawn():
    env = gym.make(ID, high=4).unwrapped
    env.reset(seed=0)
    assert env.legal_actions() == ("1", "2", "3", "4")
    seen = set()
    for seed in range(60):
        env.reset(seed=seed)
        seen.add(env._number)
    assert seen == {1, 2, 3, 4}
