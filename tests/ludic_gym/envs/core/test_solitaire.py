import gymnasium as gym

import ludic_gym  # noqa: F401 (registers the ids)

ID = "ludic/GuessTheNumber-v0"


def test_an_illegal_action_takes_a_turn_and_changes_nothing_else():
    env = gym.make(ID, turns=2)
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step("what?")
    assert text == (
        "That is not a legal action. Reply with just a number, such as 34.\n"
        "The number is from 1 to 100. Guesses left: 1."
    )
    assert (reward, terminated, truncated, info) == (0.0, False, False, {"illegal": True})


def test_the_game_is_lost_when_the_turns_are_used_up():
    env = gym.make(ID, turns=1)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("what?")
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info == {"success": False, "reward/win": 0.0, "illegal": True, "outcome": "loss"}


def test_a_win_on_the_last_turn_is_a_win():
    env = gym.make(ID, turns=1)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(str(env.unwrapped._number))
    assert (reward, terminated) == (1.0, True)
    assert info == {"success": True, "reward/win": 1.0, "illegal": False, "outcome": "win"}
