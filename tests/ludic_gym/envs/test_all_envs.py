"""What holds for every environment of the catalogue, beyond the contract of one environment."""

import os
import pickle
import random
import subprocess
import sys

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry import CATALOG

IDS = [entry.id for entry in CATALOG]

PLAYED = """
import hashlib, gymnasium as gym, ludic_gym
from envs_registry import CATALOG
digest = hashlib.sha256()
for env_id, kwargs in [
    ("ludic/TicTacToe-v0", {"opponent": "mixed", "seat": "random"}),
    ("ludic/Arithmetic-v0", {"operations": "+-*", "steps": 3, "split": "train"}),
    *((entry.id, {}) for entry in CATALOG),
]:
    env = gym.make(env_id, **kwargs)
    for seed in range(20):
        digest.update(repr(env.reset(seed=seed)).encode())
        done = False
        while not done:
            turn = env.step((env.unwrapped.legal_actions() or ("7",))[-1])
            digest.update(repr(turn).encode())
            done = turn[2]
print(digest.hexdigest())
"""


def test_seeds_mean_the_same_in_every_process():
    digests = {
        subprocess.run(
            [sys.executable, "-c", PLAYED],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def three_episodes(vector):
    """Everything a vector environment shows in some 30 steps, with a reset in between."""
    seen = [vector.reset(seed=3)]
    for turn in range(30):
        if turn == 17:
            seen.append(vector.reset())
        actions = ["ABC"[turn % 3] + "123"[turn // 3 % 3], "5", "é\n😀 \ud800"]
        seen.append(
            [
                part if isinstance(part, (tuple, dict)) else part.tolist()
                for part in vector.step(actions)
            ]
        )
    vector.close()
    return [repr(part) for part in seen]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("env_id", IDS)
def test_async_and_sync_vector_envs_show_the_same(env_id):
    sync = three_episodes(gym.make_vec(env_id, 3, vectorization_mode="sync"))
    assert three_episodes(gym.make_vec(env_id, 3, vectorization_mode="async")) == sync


def success_rate(env, policy, episodes=100):
    """How often the policy succeeds; random play is the same every time."""
    rng = random.Random(0)
    successes = 0
    env.action_space.seed(0)
    for seed in range(episodes):
        env.reset(seed=seed)
        over = False
        while not over:
            _, _, over, _, info = env.step(policy(env, rng))
        successes += info["success"]
    return successes / episodes


def at_random(env, rng):
    legal = env.legal_actions()
    return rng.choice(legal) if legal else env.action_space.sample()


@pytest.mark.parametrize(
    ("entry", "policy", "published"),
    [
        *((e, at_random, e.random_success) for e in CATALOG),
        *((e, lambda env, _: env.oracle_action(), e.oracle_success) for e in CATALOG),
    ],
    ids=[f"{id_}-{who}" for who in ("random", "oracle") for id_ in IDS],
)
def test_success_is_what_the_catalogue_says(entry, policy, published):
    rate = success_rate(gym.make(entry.id).unwrapped, policy)
    # Four standard deviations of 100 episodes, and nothing where nothing can vary.
    assert abs(rate - published) <= 4 * (published * (1 - published) / 100) ** 0.5


@pytest.mark.parametrize("env_id", IDS)
def test_an_unseeded_environment_does_not_repeat_itself(env_id):
    first, second = gym.make(env_id).unwrapped, gym.make(env_id).unwrapped
    first.reset()
    second.reset()
    assert first.np_random.random() != second.np_random.random()


@pytest.mark.parametrize("env_id", IDS)
def test_an_environment_does_not_grow_with_the_episodes_it_has_played(env_id):
    env = gym.make(env_id).unwrapped

    def state_bytes_after(episodes):
        for _ in range(episodes):
            env.reset()
            while not env.step((env.legal_actions() or ("7",))[0])[2]:
                pass
        return len(pickle.dumps(env))

    # Numbers of other lengths make some bytes of difference.
    assert state_bytes_after(1) == pytest.approx(state_bytes_after(1000), abs=500)
