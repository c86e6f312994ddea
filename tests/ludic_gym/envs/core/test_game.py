"""Games: perfect play, scripted replies, and games of one player."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.core.game import perfect_action, solved
from ludic_gym.envs.games.kuhn_poker import KUHN_POKER
from ludic_gym.envs.games.liars_dice import liars_dice
from ludic_gym.envs.games.tic_tac_toe import TIC_TAC_TOE

# Take one or two matches in turn; who takes the last one wins. State: matches left, who moves.
NIM = {
    "mover": lambda state: state[1],
    "legal_actions": lambda state: tuple(n for n in "12" if int(n) <= state[0]),
    "play": lambda state, action: (state[0] - int(action), 1 - state[1]),
    # Who is to move with no match left has lost.
    "returns": lambda state: None if state[0] else ((-1.0, 1.0) if state[1] == 0 else (1.0, -1.0)),
}


@pytest.mark.parametrize("player", [0, 1])
@pytest.mark.parametrize(("matches", "best"), [(1, "1"), (2, "2"), (4, "1"), (5, "2"), (7, "1")])
def test_perfect_play_leaves_a_multiple_of_three_matches(matches, best, player):
    assert solved(**NIM)((matches, player)) == (best,)


def test_equally_good_actions_are_ordered_by_what_they_win_against_random_ones():
    # 3 matches are lost against perfect play. Taking 1 leaves 2: a random opponent takes both in
    # half the cases. Taking 2 leaves 1, and the opponent must win.
    assert solved(**NIM)((3, 0)) == ("1", "2")


def test_perfect_replies_are_drawn_from_all_the_best_ones():
    # X in a corner is answered perfectly only by the centre, X in the centre by any corner.
    rng = np.random.default_rng(0)
    assert {perfect_action(TIC_TAC_TOE, "X........", rng) for _ in range(20)} == {"B2"}
    centre = [perfect_action(TIC_TAC_TOE, "....X....", rng) for _ in range(400)]
    assert {action: centre.count(action) > 60 for action in set(centre)} == dict.fromkeys(
        ("A1", "A3", "C1", "C3"), True
    )


def test_a_game_survives_pickling_by_its_maker_or_by_its_functions():
    made = liars_dice(2, 1)
    assert pickle.loads(pickle.dumps(made)) is copy.deepcopy(made) is made
    assert pickle.loads(pickle.dumps(KUHN_POKER)) == copy.deepcopy(KUHN_POKER) == KUHN_POKER
    # What has neither says so.
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(replace(KUHN_POKER, mover=lambda state: 0))


ID = "ludic/GuessTheNumber-v0"


def test_an_illegal_action_takes_a_turn_and_changes_nothing_else():
    env = gym.make(ID, turns=2)
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step("what?")
    assert text == (
        "That is not a legal action. Reply with just a number, such as 34.\n"
        "The number is from 1 to 100. Guesses left: 1."
    )
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info == {"illegal": True, "action": "", "rule": "none"}


def test_the_game_is_lost_when_the_turns_are_used_up():
    env = gym.make(ID, turns=1)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("what?")
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert (info["success"], info["illegal"], info["outcome"]) == (False, True, "loss")


def test_a_win_on_the_last_turn_is_a_win():
    env = gym.make(ID, turns=1)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(str(env.unwrapped.number))
    assert (reward, terminated) == (1.0, True)
    assert info == {"success": True, "reward/win": 1.0, "illegal": False, "outcome": "win"}
