from collections import Counter
from fractions import Fraction

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.kuhn_poker import (
    EQUILIBRIUM,
    State,
    best_actions,
    exploitability,
    legal_actions,
    observation,
    returns,
    won_chips,
)

ID = "ludic/KuhnPoker-v0"


@pytest.mark.parametrize(
    ("actions", "chips"),
    [
        ("", None),
        ("check", None),
        ("bet", None),
        ("check bet", None),
        ("check check", 1),
        ("bet call", 2),
        ("check bet call", 2),
        ("bet fold", 1),
        ("check bet fold", -1),
    ],
)
def test_the_pot_goes_to_the_higher_card_or_to_who_does_not_fold(actions, chips):
    actions = tuple(actions.split())
    assert won_chips(State("KJ", actions)) == chips
    if chips and "fold" not in actions:
        assert won_chips(State("JK", actions)) == -chips


def test_returns_are_in_stakes_of_two_chips():
    assert returns(State("QK", ("bet", "call"))) == (-1.0, 1.0)
    assert returns(State("QK", ("check", "check"))) == (-0.5, 0.5)
    assert returns(State("QK", ())) is None


def test_a_bet_is_answered_by_call_or_fold():
    assert legal_actions(State("QK", ("bet",))) == ("call", "fold")
    assert legal_actions(State("QK", ("check",))) == ("check", "bet")


def test_a_player_sees_its_own_card_only_until_the_showdown():
    assert observation(State("QK", ("check",)), 1) == "Your card: K\nActions: check"
    assert observation(State("QK", ("bet", "fold")), 0) == "Your card: Q\nActions: bet, fold"
    assert observation(State("QK", ("bet", "call")), 0).endswith("\nThe other card: K")


def test_agents_do_not_see_each_others_cards():
    env = pettingzoo.make("aec", ID)
    seen = {}
    for seed in range(60):
        env.reset(seed=seed)
        cards = env.unwrapped._state.cards
        for agent, card in zip(env.agents, cards, strict=True):
            assert seen.setdefault((agent, card), env.observe(agent)) == env.observe(agent)
    assert len(seen) == 6


def test_the_equilibrium_cannot_be_exploited():
    assert exploitability(EQUILIBRIUM) == 0


def test_what_best_responses_win():
    # Known for play at random: a sum of 11/12 over both seats.
    assert exploitability(dict.fromkeys(EQUILIBRIUM, Fraction(1, 2))) == Fraction(11, 24)
    # Never bets, never calls: a best response bets always and wins one chip, from both seats.
    assert exploitability(dict.fromkeys(EQUILIBRIUM, Fraction(0))) == 1


def test_another_equilibrium_of_the_first_player_cannot_be_exploited_either():
    # alpha = 1/3: bets J one time in three, K always, and calls with Q two times in three.
    third = {
        ("J", ()): Fraction(1, 3),
        ("K", ()): Fraction(1),
        ("Q", ("check", "bet")): Fraction(2, 3),
    }
    assert exploitability({**EQUILIBRIUM, **third}) == 0
    assert exploitability({**EQUILIBRIUM, ("Q", ()): Fraction(1)}) > 0


def test_perfect_play_mixes_as_the_equilibrium_does():
    assert Counter(best_actions(State("QJ", ("check", "bet")))) == {
        "call": 1,
        "fold": 2,
    }
    assert best_actions(State("QJ", ("check",))) == ("check", "check", "bet")
    assert set(best_actions(State("QK", ("bet",)))) == {"call"}


def test_an_action_out_of_turn_is_illegal():
    env = gym.make(ID)
    env.reset(seed=0)
    assert env.step("call")[4]["outcome"] == "illegal"


def test_the_case_of_an_action_does_not_matter():
    env = gym.make("ludic/KuhnPoker-v0")
    env.reset(seed=0)
    assert "bet" in env.step("Bet")[0]
