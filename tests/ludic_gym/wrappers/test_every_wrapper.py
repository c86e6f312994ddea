"""Properties of every wrapper, alone and within the others."""

import copy
import pickle
from functools import partial

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.wrappers.common import Curriculum, TurnLimit, WeighRewards
from ludic_gym.wrappers.messages import ChatMessages
from ludic_gym.wrappers.recorder import RecordText

GAME = "ludic/TicTacToe-v0"
STAGES = ({"opponent": "random"}, {"opponent": "perfect", "seat": "random"})


def limited(folder):
    return TurnLimit(gym.make(GAME), 3)


def weighed(folder):
    return WeighRewards(gym.make(GAME), {"outcome": 0.5})


def recorded(folder):
    return RecordText(gym.make(GAME), folder)


def as_chat(folder):
    return ChatMessages(gym.make(GAME))


def in_stages(folder):
    return Curriculum(gym.make(GAME), STAGES, window=3)


def all_at_once(folder):
    env = TurnLimit(in_stages(folder), 4)
    env = WeighRewards(env, {"outcome": 2}, default=1)
    return ChatMessages(RecordText(env, folder), "Play well.")


every_wrapper = pytest.mark.parametrize(
    "wrap", [limited, weighed, recorded, as_chat, in_stages, all_at_once]
)


def played(env, turns=12):
    """Some turns of the episode that is running and of those after it."""
    seen = []
    for turn in range(turns):
        legal = env.unwrapped.legal_actions()
        seen.append(env.step(legal[turn % len(legal)]))
        if seen[-1][2] or seen[-1][3]:
            seen.append(env.reset())
    return seen


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
@every_wrapper
def test_gymnasiums_check_passes(wrap, tmp_path):
    check_env(wrap(tmp_path))


@every_wrapper
def test_the_spec_makes_the_same_again_also_from_json(wrap, tmp_path):
    env = wrap(tmp_path)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    assert str(again) == str(env)
    assert again.reset(seed=3) == env.reset(seed=3)
    assert played(again) == played(env)


@every_wrapper
def test_a_copy_and_a_pickle_made_in_mid_episode_go_on_alike(wrap, tmp_path):
    env = wrap(tmp_path)
    env.reset(seed=0)
    played(env, 6)
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    rest = played(env, 20)
    assert [played(twin, 20) for twin in twins] == [rest, rest]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@every_wrapper
def test_all_vector_envs_show_the_same(wrap, tmp_path):
    seen = []
    for make in (SyncVectorEnv, partial(AsyncVectorEnv, shared_memory=False)):
        vector = make([partial(wrap, tmp_path)] * 2)
        turns = [vector.reset(seed=1)]
        turns += [vector.step(("B2", f"A{turn % 3 + 1} é😀\ud800")) for turn in range(10)]
        vector.close()
        seen.append(ascii(turns))
    assert seen[1] == seen[0]


@every_wrapper
def test_the_last_info_says_success_and_adds_up_the_reward(wrap, tmp_path):
    env = wrap(tmp_path)
    for seed in range(20):
        env.reset(seed=seed)
        over = False
        while not over:
            action = env.unwrapped.legal_actions()[0]
            _, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        assert not (terminated and truncated)
        assert isinstance(info["success"], bool)
        parts = [value for key, value in info.items() if key.startswith("reward/")]
        assert parts
        assert sum(parts) == reward
