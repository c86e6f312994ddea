"""Properties of all environments of the catalogue, beyond the contract of one environment."""

import random

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from envs_registry.catalog import CATALOG

IDS = [entry.id for entry in CATALOG]


def success_rate(env, policy, episodes):
    """Success rate of the policy; random play is the same every time."""
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("entry", "policy", "published"),
    [
        *((e, at_random, e.random_success) for e in CATALOG),
        *((e, lambda env, _: env.oracle_action(), e.oracle_success) for e in CATALOG),
    ],
    ids=[f"{id_}-{who}" for who in ("random", "oracle") for id_ in IDS],
)
def test_success_is_what_the_catalogue_says(entry, policy, published):
    # Sandboxes take long, and where a rate is 0 or 1 few episodes tell as much.
    certain = published in (0, 1)
    episodes = 8 if "sandbox" in entry.tags else 15 if certain else 60
    rate = success_rate(gym.make(entry.id).unwrapped, policy, episodes)
    # Four standard deviations, and nothing where nothing can vary.
    assert abs(rate - published) <= 4 * (published * (1 - published) / episodes) ** 0.5


@pytest.mark.parametrize("env_id", IDS)
def test_an_unseeded_environment_does_not_repeat_itself(env_id):
    first, second = gym.make(env_id).unwrapped, gym.make(env_id).unwrapped
    first.reset()
    second.reset()
    assert first.np_random.random() != second.np_random.random()


@pytest.mark.parametrize("entry", CATALOG, ids=IDS)
def test_an_environment_of_one_turn_says_so(entry):
    assert gym.make(entry.id).unwrapped.single_turn == ("single-turn" in entry.tags)
