"""No reply that is always the same earns what good play earns."""

from statistics import fmean

import gymnasium as gym
import pytest

import ludic_gym as lg
from envs_registry.catalog import CATALOG

SEEDS = range(24)
TURNS = 32
CONSTANT = (
    *("", "hello", "accept", "yes", "pass", "done", "[]", "up", "bet", "call", "rock", "1"),
    *("cooperate", "defect", "I choose this. <answer>hello</answer>"),
    '{"name": "submit", "arguments": {}}',
    '{"name": "finish", "arguments": {}}',
)
# 2048 is won after some hundred moves.
LONG = {"ludic/Game2048-v0": 2000}
# Against random play, to bet always is a best response: by hand, 1/2 chip a game.
EQUAL = {("ludic/KuhnPoker-v0", "bet")}
SANDBOXED = ("ludic/DataAnalysis-v0", "ludic/RepoRepair-v0", "ludic/Terminal-v0")


def several_turns():
    ids = [entry.id for entry in CATALOG if entry.gym]
    envs = {name: gym.make(name).unwrapped for name in ids}
    return [
        name for name, env in envs.items() if isinstance(env, lg.TextEnv) and not env.single_turn
    ]


def earned(env, seed, reply, turns=TURNS):
    observation, _ = env.reset(seed=seed)
    total = 0.0
    for _ in range(turns):
        observation, reward, terminated, truncated, _ = env.step(reply(env.unwrapped, observation))
        total += reward
        if terminated or truncated:
            break
    return total


@pytest.mark.parametrize("env_id", several_turns())
def test_no_constant_reply_and_no_echo_earns_what_the_oracle_earns(env_id):
    env = gym.make(env_id)
    seeds = SEEDS[:3] if env_id in SANDBOXED or env_id in LONG else SEEDS
    env.reset(seed=0)
    replies = [*CONSTANT, *env.unwrapped.legal_actions()[:8]]
    best = fmean(
        earned(env, seed, lambda env, _: env.oracle_action(), LONG.get(env_id, TURNS))
        for seed in seeds
    )
    assert best > 0
    for constant in replies:
        mean = fmean(earned(env, seed, lambda env, _, said=constant: said) for seed in seeds)
        assert mean < best or ((env_id, constant) in EQUAL and mean == best), (constant, mean, best)
    assert fmean(earned(env, seed, lambda env, observation: observation) for seed in seeds) < best
