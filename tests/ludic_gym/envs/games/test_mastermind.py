import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.guessing import all_codes, hint

ID = "ludic/Mastermind-v0"


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
    env = gym.make(ID)
    env.reset(seed=0)
    env.unwrapped._code = "ACAD"
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
    env = gym.make(ID)
    env.reset(seed=0)
    assert env.step(action)[4]["illegal"]


def test_the_oracle_needs_at_most_nine_guesses():
    env = gym.make(ID).unwrapped
    for code in all_codes("ABCDEF", 4)[::37]:
        env.reset(seed=0)
        env._code = code
        turns, over = 0, False
        while not over:
            _, reward, over, _, _ = env.step(env.oracle_action())
            turns += 1
        assert (reward, turns <= 9) == (1.0, True)


def test_there_are_letters_to_the_power_of_length_codes():
    env = gym.make(ID, letters=3, length=2).unwrapped
    env.reset(seed=0)
    assert env.legal_actions() == ("AA", "AB", "AC", "BA", "BB", "BC", "CA", "CB", "CC")
