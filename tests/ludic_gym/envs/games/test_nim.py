import copy
import pickle

import gymnasium as gym
import pettingzoo
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.core.game import solved
from ludic_gym.envs.games.nim import (
    best_actions,
    legal_actions,
    mover,
    nim_sum,
    observation,
    play,
    returns,
)
from ludic_gym.errors import ConfigError

ID = "ludic/Nim-v0"


def test_stones_are_taken_from_one_pile():
    assert play(((3, 4, 5), 0), "2 3") == ((3, 1, 5), 1)
    assert legal_actions(((2, 0, 1), 0)) == ("1 1", "1 2", "3 1")
    assert observation(((2, 0, 1), 0), 1) == "Pile 1: 2\nPile 2: 0\nPile 3: 1"


def test_who_takes_the_last_stone_wins():
    assert returns(((0, 0, 1), 0)) is None
    assert returns(((0, 0, 0), 1)) == (1.0, -1.0)
    assert returns(((0, 0, 0), 0)) == (-1.0, 1.0)


@pytest.mark.parametrize(
    ("piles", "best"),
    [
        # 4 xor 5 = 1: two of the three stones go.
        ((3, 4, 5), ("1 2",)),
        ((0, 4, 3), ("2 1",)),
        ((1, 1, 1), ("1 1", "2 1", "3 1")),
        # 1 xor 2 xor 3 = 0 is lost.
        ((1, 2, 3), ("3 1",)),
    ],
)
def test_best_play_leaves_an_exclusive_or_of_zero(piles, best):
    assert best_actions((piles, 0)) == best


def test_best_play_is_what_a_full_search_finds():
    exact = solved(
        mover=mover, legal_actions=legal_actions, play=play, returns=returns
    ).best_actions
    for piles in [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]:
        if nim_sum((piles, 0)):
            assert set(best_actions((piles, 0))) == set(exact((piles, 0)))


def test_games_begin_with_three_piles_of_one_to_seven():
    env = gym.make(ID)
    seen = set()
    for seed in range(100):
        env.reset(seed=seed)
        seen |= set(env.unwrapped.state[0])
    assert seen == set(range(1, 8))


@pytest.mark.parametrize("action", ["4 1", "1 0", "1 8", "1", "", "1 1 1", "-1 1"])
def test_what_cannot_be_taken_is_illegal(action):
    env = gym.make(ID)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(action)
    assert (reward, terminated, info["outcome"]) == (-1.0, True, "illegal")


def test_piles_and_stones_can_be_chosen():
    env = gym.make(ID, piles=2, largest=1)
    text, _ = env.reset(seed=0)
    assert text == "Pile 1: 1\nPile 2: 1"
    pair = pettingzoo.make("aec", ID, piles=4, largest=1)
    pair.reset(seed=0)
    assert pair.legal_actions() == ("1 1", "2 1", "3 1", "4 1")


def test_white_space_between_the_numbers_does_not_matter():
    env = gym.make(ID, piles=1, largest=1)
    env.reset(seed=0)
    assert env.step(" 1 \t 1\n")[4]["outcome"] == "win"


@pytest.mark.parametrize("kwargs", [{"piles": 0}, {"piles": 10}, {"largest": 0}, {"largest": 1.5}])
def test_too_few_and_too_many_are_refused(kwargs):
    with pytest.raises(ConfigError, match="is an int from 1 to"):
        gym.make(ID, **kwargs)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_keeps_the_piles(copied):
    env = gym.make(ID, piles=5, largest=2).unwrapped
    env.reset(seed=0)
    twin = copied(env)
    assert twin.game is env.game
    assert twin.step("1 1") == env.step("1 1")
