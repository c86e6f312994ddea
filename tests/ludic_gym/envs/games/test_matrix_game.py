"""Games of simultaneous moves: rounds, payoffs, opponents."""

from __future__ import annotations

import re
from functools import partial

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games import prisoners_dilemma, rock_paper_scissors
from ludic_gym.envs.games.matrix_game import Rounds, observation, returns
from ludic_gym.errors import ConfigError, EnvError, EpisodeOver

ID = "ludic/RockPaperScissors-v0"
STATE = Rounds((("a", "b"),), "a")


def test_a_pending_choice_is_hidden_and_the_own_one_comes_first():
    assert observation(3, STATE, 1) == (
        "In round 1 you chose b and the other player chose a. This is round 2 of 3."
    )
    assert observation(3, STATE, 0) == observation(3, STATE._replace(pending=""), 0)


def test_the_return_is_the_mean_payoff():
    payoffs = {("a", "b"): 1.0, ("b", "a"): -0.5, ("a", "a"): 0.0}
    ended = partial(returns, 2, payoffs)
    assert ended(Rounds((("a", "b"),))) is None
    assert ended(Rounds((("a", "b"), ("a", "a")))) == (0.5, -0.25)


def joint():
    env = pettingzoo.make("parallel", ID)
    env.reset(seed=0)
    return env


def after_round_one(own, other):
    """The observation of a player that chose `own`."""
    return f"In round 1 you chose {own} and the other player chose {other}. This is round 2 of 9."


def test_both_actions_count_at_once():
    env = joint()
    observations, rewards, ended, _, infos = env.step({"player_0": "rock", "player_1": "paper"})
    assert observations["player_0"] == after_round_one("rock", "paper")
    assert observations["player_1"] == after_round_one("paper", "rock")
    assert (rewards, infos) == (dict.fromkeys(rewards, 0.0), {"player_0": {}, "player_1": {}})
    assert not any(ended.values())


def test_nine_rounds_end_the_game_for_both():
    env = joint()
    for _ in range(9):
        turn = env.step({"player_0": "rock", "player_1": "paper"})
    assert turn[1] == {"player_0": -1.0, "player_1": 1.0}
    assert turn[4]["player_1"] == {"success": True, "reward/outcome": 1.0, "outcome": "win"}
    assert env.agents == []
    with pytest.raises(EpisodeOver):
        env.step({"player_0": "rock", "player_1": "paper"})


@pytest.mark.parametrize(
    ("actions", "rewards"),
    [(("x", "rock"), (-1.0, 1.0)), (("rock", "x"), (1.0, -1.0)), (("x", "y"), (-1.0, -1.0))],
)
def test_who_acts_illegally_loses_even_both(actions, rewards):
    env = joint()
    _, earned, ended, _, infos = env.step(dict(zip(env.agents, actions, strict=True)))
    assert tuple(earned.values()) == rewards
    assert all(ended.values())
    assert [info["outcome"] for info in infos.values()] == [
        "illegal" if reward < 0 else "win" for reward in rewards
    ]


def test_both_must_act():
    with pytest.raises(EnvError, match="both agents act with a str"):
        joint().step({"player_0": "rock"})


def test_in_turn_the_second_does_not_see_the_first_choice():
    env = pettingzoo.make("aec", ID)
    env.reset(seed=0)
    before = env.observe("player_1")
    env.step("rock")
    assert env.observe("player_1") == before


@pytest.mark.parametrize("env_id", [ID, "ludic/IteratedPrisonersDilemma-v0"])
def test_rounds_can_be_chosen_and_are_told(env_id):
    env = gym.make(env_id, rounds=2).unwrapped
    text, info = env.reset(seed=0)
    assert text == "This is round 1 of 2."
    assert "You play 2 rounds" in info["system_prompt"]
    action = env.legal_actions()[0]
    assert [env.step(action)[2], env.step(action)[2]] == [False, True]
    joint = pettingzoo.make("parallel", env_id, rounds=1)
    joint.reset(seed=0)
    joint.step(dict.fromkeys(joint.agents, action))
    assert joint.agents == []
    with pytest.raises(ConfigError, match="rounds is an int from 1 to 1000, got 0"):
        gym.make(env_id, rounds=0)


ROCK_PAPER_SCISSORS = "ludic/RockPaperScissors-v0"


def test_paper_beats_rock_beats_scissors_beats_paper():
    assert [pair for pair, payoff in rock_paper_scissors.PAYOFFS.items() if payoff == 1.0] == [
        ("rock", "scissors"),
        ("paper", "rock"),
        ("scissors", "paper"),
    ]
    assert sum(rock_paper_scissors.PAYOFFS.values()) == 0


def choices(opponent, actions):
    """Choices of the opponent in the rounds of these actions."""
    env = gym.make(ROCK_PAPER_SCISSORS, opponent=opponent)
    env.reset(seed=0)
    texts = [env.step(action)[0] for action in actions]
    return [re.search(r"other player chose (\w+)", text)[1] for text in texts]


def test_a_copy_follows_by_a_round():
    assert choices("copy", ["rock", "paper", "paper", "scissors"])[1:] == ["rock", "paper", "paper"]


@pytest.mark.parametrize("opponent", ["cycle", "copy"])
@pytest.mark.parametrize("seat", ["first", "second"])
def test_the_oracle_sees_through_rules(opponent, seat):
    env = gym.make(ROCK_PAPER_SCISSORS, opponent=opponent, seat=seat).unwrapped
    for seed in range(20):
        env.reset(seed=seed)
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.oracle_action())
        # Eight rounds of nine are foreseen.
        assert reward >= 7 / 9


PRISONERS_DILEMMA = "ludic/IteratedPrisonersDilemma-v0"


def played(actions, **kwargs):
    """The reward of the actions, and what the opponent did."""
    env = gym.make(PRISONERS_DILEMMA, **kwargs)
    env.reset(seed=0)
    others = []
    for action in actions:
        text, reward, *_ = env.step(action)
        others.append(re.search("other player chose (.)", text)[1])
    return reward, others


def test_betrayal_tempts_and_cooperation_is_zero():
    assert prisoners_dilemma.PAYOFFS["cooperate", "cooperate"] == 0
    assert prisoners_dilemma.PAYOFFS["defect", "cooperate"] == pytest.approx(2 / 3)
    assert prisoners_dilemma.PAYOFFS["defect", "defect"] == pytest.approx(-2 / 3)
    assert prisoners_dilemma.PAYOFFS["cooperate", "defect"] == -1


def test_tit_for_tat_answers_in_kind():
    actions = ["cooperate", "defect", "cooperate", *["cooperate"] * 7]
    reward, others = played(actions)
    assert "".join(others) == "ccdccccccc"
    # Points: 3, 5, 0 and seven times 3 are 29; (2.9 - 3) / 3.
    assert reward == pytest.approx(-0.1 / 3)


def test_grim_does_not_forgive():
    _, others = played(["defect", *["cooperate"] * 9], opponent="grim")
    assert "".join(others) == "cddddddddd"


@pytest.mark.parametrize(
    ("opponent", "points"),
    # Nine times 3 and a betrayal; ten betrayals; ten punishments.
    [("tit_for_tat", 32), ("grim", 32), ("always_cooperate", 50), ("always_defect", 10)],
)
def test_the_oracle_gets_the_most_points(opponent, points):
    env = gym.make(PRISONERS_DILEMMA, opponent=opponent).unwrapped
    env.reset(seed=0)
    over = False
    while not over:
        _, reward, over, _, _ = env.step(env.oracle_action())
    assert reward == pytest.approx((points / 10 - 3) / 3)
