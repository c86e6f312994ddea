import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.errors import ConfigError

ID = "ludic/TowerOfHanoi-v0"


def test_a_game_of_two_disks():
    env = gym.make(ID, disks=2)
    assert env.reset(seed=0)[0] == "A: 2 1\nB:\nC:"
    assert env.step("ab")[0] == "A: 2\nB: 1\nC:"
    assert env.step(" AC\n")[0] == "A:\nB: 1\nC: 2"
    text, reward, terminated, _, info = env.step("BC")
    assert text == "A:\nB:\nC: 2 1"
    assert (reward, terminated, info["outcome"]) == (1.0, True, "win")


@pytest.mark.parametrize("action", ["AA", "BA", "CB", "A", "ABC", "", "A B", "XY", "AB AC"])
def test_only_a_top_disk_onto_a_larger_one_is_legal(action):
    env = gym.make(ID, disks=2)
    env.reset(seed=0)
    assert env.unwrapped.legal_actions() == ("AB", "AC")
    assert env.step(action)[4]["illegal"]


def test_a_larger_disk_stays_off_a_smaller_one():
    env = gym.make(ID, disks=2)
    env.reset(seed=0)
    env.step("AB")
    assert env.unwrapped.legal_actions() == ("AC", "BA", "BC")


@pytest.mark.parametrize("disks", [1, 2, 3, 6])
def test_the_oracle_carries_the_tower_in_two_to_the_n_less_one_moves(disks):
    env = gym.make(ID, disks=disks).unwrapped
    env.reset(seed=0)
    moves, over = 0, False
    while not over:
        _, reward, over, _, _ = env.step(env.oracle_action())
        moves += 1
    assert (reward, moves) == (1.0, 2**disks - 1)


def test_random_positions_are_not_solved_yet_and_can_be():
    env = gym.make(ID, disks=2, start="random").unwrapped
    seen = set()
    for seed in range(100):
        env.reset(seed=seed)
        seen.add(env._pegs)
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.oracle_action())
        assert reward == 1.0
    # Three pegs for each of two disks, less the goal.
    assert len(seen) == 8


@pytest.mark.parametrize("kwargs", [{"disks": 0}, {"disks": 11}, {"start": "middle"}])
def test_options_that_do_not_exist_are_refused(kwargs):
    with pytest.raises(ConfigError):
        gym.make(ID, **kwargs)


def test_the_tower_itself_has_no_splits():
    with pytest.raises(ConfigError, match="no split='test': give start='random'"):
        gym.make(ID, split="test")
    assert gym.make(ID, start="random", split="test").reset(seed=0)[0].count("\n") == 2
