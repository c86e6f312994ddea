"""Loops over environments, ours and any other: random play, with a seed for every episode."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import gymnasium as gym
import pettingzoo
from gymnasium.utils import seeding
from gymnasium.vector import SyncVectorEnv, VectorEnv

import ludic_gym  # noqa: F401  registers the environments
from harness.rates import Work
from ludic_gym.spaces import TEXT

CELLS = tuple(row + column for row in "ABC" for column in "123")
GAME, SUMS, QUESTIONS = "ludic/TicTacToe-v0", "ludic/Arithmetic-v0", "ludic/GSM8K-v0"
EPISODES = 100


def steps(env_id: str, *, seeded: bool = True, **kwargs: object) -> Work:
    """Steps of random play: actions that are legal at the start, or any text, drawn beforehand."""
    env = gym.make(env_id, **kwargs)
    env.reset(seed=0)
    rng, legal = random.Random(0), env.unwrapped.legal_actions()
    env.action_space.seed(0)
    actions = [rng.choice(legal) if legal else env.action_space.sample() for _ in range(997)]
    return played(env, actions, seeded=seeded)


def played(env: Any, actions: Sequence[str], *, seeded: bool) -> Work:  # noqa: ANN401 (any peer's)
    """Steps of the env with the actions in turn; a reset with a new seed for each episode."""
    seeds, turn = count(), 0
    while True:
        done = 0
        for _ in range(20):
            if seeded:
                env.reset(seed=next(seeds))
            else:
                env.reset()
            over = False
            while not over:
                _, _, terminated, truncated, _ = env.step(actions[turn % len(actions)])
                over = terminated or truncated
                turn += 1
                done += 1
        yield done


def generators() -> Work:
    """Generators of Gymnasium, one per seed."""
    seeds = count()
    while True:
        for _ in range(EPISODES):
            seeding.np_random(next(seeds))
        yield EPISODES


def answers(env_id: str, *, seeded: bool = True, **kwargs: object) -> Work:
    """Episodes of one answer."""
    env = gym.make(env_id, **kwargs)
    seeds = count()
    while True:
        for _ in range(EPISODES):
            env.reset(seed=next(seeds) if seeded else None)
            env.step("<answer>85</answer>")
        yield EPISODES


class Bare(gym.Env[str, str]):
    """Does nothing, with the info of most environments."""

    observation_space = TEXT
    action_space = TEXT

    def __init__(self, turns: int = 4) -> None:
        self._turns = turns
        self._turn = 0

    def reset(
        self, *, seed: int | None = None, options: object = None
    ) -> tuple[str, dict[str, Any]]:
        """Start at turn 0."""
        self._turn = 0
        return "", {"system_prompt": "Play."}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Count the turn."""
        self._turn += 1
        return "x", 0.0, self._turn >= self._turns, False, {"score": 0.5}


def bare_steps() -> Work:
    """Steps of an env that does nothing, with the loop of `steps`."""
    return played(Bare(), CELLS, seeded=True)


def moves_in_pairs() -> Work:
    """Moves of both agents of Tic-Tac-Toe in turn; the steps in which they retire do not count."""
    env = pettingzoo.make("aec", GAME)
    rng, seeds = random.Random(0), count()
    while True:
        env.reset(seed=next(seeds))
        moves = 0
        for _ in env.agent_iter():
            over = env.last()[2]
            env.step(None if over else rng.choice(env.legal_actions()))
            moves += not over
        yield moves


def joint_steps() -> Work:
    """Steps of Tic-Tac-Toe with joint actions: random cells, the same for both agents."""
    env = pettingzoo.make("parallel", GAME)
    rng, seeds = random.Random(0), count()
    while True:
        env.reset(seed=next(seeds))
        done = 0
        for cell in rng.sample(CELLS, len(CELLS)):
            if env.agents:
                env.step(dict.fromkeys(env.agents, cell))
                done += 1
        yield done


def vector_steps(vector: VectorEnv, actions: Sequence[str] = CELLS) -> Work:
    """Steps of all environments of a vector, each with random actions of its own."""
    rng = random.Random(0)
    turns = [tuple(rng.choices(actions, k=vector.num_envs)) for _ in range(16)]
    vector.reset(seed=0)
    while True:
        for turn in turns:
            vector.step(turn)
        yield len(turns) * vector.num_envs


def lone_steps(make: Callable[[], gym.Env[str, str]], actions: Sequence[str] = CELLS) -> Work:
    """Turns of one env as a vector plays them: random actions, and a reset in place of one."""
    rng, env, over = random.Random(0), make(), False
    turns = rng.choices(actions, k=512)
    env.reset(seed=0)
    while True:
        for action in turns:
            if over:
                env.reset()
                over = False
            else:
                _, _, terminated, truncated, _ = env.step(action)
                over = terminated or truncated
        yield len(turns)


def sync_games(size: int) -> VectorEnv:
    """Tic-Tac-Toe in Gymnasium's vector environment."""
    return SyncVectorEnv([lambda: gym.make(GAME)] * size)


def makes() -> Work:
    """Environments made by id."""
    while True:
        gym.make(GAME)
        yield 1


def copies(copied: Callable[[gym.Env[str, str]], object]) -> Work:
    """Copies of a game in mid-episode."""
    env = gym.make(GAME).unwrapped
    env.reset(seed=0)
    env.step("B2")
    while True:
        copied(env)
        yield 1


def deep_copies() -> Work:
    """Deep copies of a game in mid-episode."""
    return copies(copy.deepcopy)


def pickles() -> Work:
    """Copies of a game in mid-episode through bytes."""
    return copies(lambda env: pickle.loads(pickle.dumps(env)))
