import re

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.rock_paper_scissors import PAYOFFS

ID = "ludic/RockPaperScissors-v0"


def test_paper_beats_rock_beats_scissors_beats_paper():
    assert [pair for pair, payoff in PAYOFFS.items() if payoff == 1.0] == [
        ("rock", "scissors"),
        ("paper", "rock"),
        ("scissors", "paper"),
    ]
    assert sum(PAYOFFS.values()) == 0


def choices(opponent, actions):
    """Choices of the opponent in the rounds of these actions."""
    env = gym.make(ID, opponent=opponent)
    env.reset(seed=0)
    texts = [env.step(action)[0] for action in actions]
    return [re.search(r"other player chose (\w+)", text)[1] for text in texts]


def test_a_cycle_goes_on_whatever_is_played():
    made = choices("cycle", ["rock"] * 9)
    assert made[:3] == made[3:6] == made[6:]
    assert set(made) == {"rock", "paper", "scissors"}


def test_a_copy_follows_by_a_round():
    assert choices("copy", ["rock", "paper", "paper", "scissors"])[1:] == ["rock", "paper", "paper"]


@pytest.mark.parametrize("opponent", ["cycle", "copy"])
@pytest.mark.parametrize("seat", ["first", "second"])
def test_the_oracle_sees_through_rules(opponent, seat):
    env = gym.make(ID, opponent=opponent, seat=seat).unwrapped
    for seed in range(20):
        env.reset(seed=seed)
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.oracle_action())
        # Eight rounds of nine are foreseen.
        assert reward >= 7 / 9
