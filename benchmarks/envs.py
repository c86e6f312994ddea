"""How fast environments and graders are, in units per CPU-second of this process, best of 5.

python benchmarks/envs.py [--seconds 0.3]
"""

from __future__ import annotations

import argparse
import copy
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import gymnasium as gym
import pettingzoo

import ludic_gym  # noqa: F401  registers the environments
from ludic_gym.graders import grade_number

REPEATS = 5
CELLS = tuple(row + column for row in "ABC" for column in "123")
GAME, SUMS, QUESTIONS = "ludic/TicTacToe-v0", "ludic/Arithmetic-v0", "ludic/GSM8K-v0"
ANSWERS = {
    "bare": "85",
    "tag": "It takes 40 + 45 pens.\n<answer>85</answer>",
    "boxed": "It takes 40 + 45 pens.\n\\boxed{85}",
    "hashes": "It takes 40 + 45 pens.\n#### 85",
    "phrase": "It takes 40 + 45 pens. The answer is 85.",
    "wrong": "It takes 40 + 45 pens, I think.",
}

# Does a batch of the work whenever it is asked, and yields how many units that was.
Work = Iterator[int]


@dataclass(frozen=True)
class Measured:
    """One line of the table; `goal` is in the same unit, 0 for none."""

    what: str
    work: Callable[[], Work]
    goal: int = 0


def game_steps(**kwargs: str) -> Work:
    """Steps of Tic-Tac-Toe in which the agent takes the first free cell."""
    env = gym.make(GAME, **kwargs)
    legal_actions = env.unwrapped.legal_actions
    while True:
        env.reset()
        steps, over = 0, False
        while not over:
            over = env.step(legal_actions()[0])[2]
            steps += 1
        yield steps


def turns_in_pairs() -> Work:
    """Steps of both agents of Tic-Tac-Toe, the last two in which they retire included."""
    env = pettingzoo.make("aec", GAME)
    while True:
        env.reset()
        steps = 0
        for _ in env.agent_iter():
            over = env.last()[2]
            env.step(None if over else env.legal_actions()[0])
            steps += 1
        yield steps


def joint_steps() -> Work:
    """Steps of Tic-Tac-Toe with joint actions: every cell in turn, for both agents."""
    env = pettingzoo.make("parallel", GAME)
    while True:
        env.reset()
        steps = 0
        while env.agents:
            env.step(dict.fromkeys(env.agents, CELLS[steps]))
            steps += 1
        yield steps


def answers(env_id: str, seeded: bool, **kwargs: str) -> Work:
    """Whole episodes of one answer."""
    env = gym.make(env_id, **kwargs)
    seeds = count()
    while True:
        for _ in range(100):
            env.reset(seed=next(seeds) if seeded else None)
            env.step("<answer>85</answer>")
        yield 100


def resets(seeded: bool) -> Work:
    """New games that nobody plays."""
    env = gym.make(GAME)
    while True:
        for seed in range(100):
            env.reset(seed=seed if seeded else None)
        yield 100


def makes() -> Work:
    """Environments made by id."""
    while True:
        gym.make(GAME)
        yield 1


def vector_steps(size: int) -> Work:
    """Steps of all games of a synchronous vector environment, turn by turn the next cell."""
    vector = gym.make_vec(GAME, size, vectorization_mode="sync")
    vector.reset(seed=0)
    while True:
        for cell in CELLS:
            vector.step((cell,) * size)
        yield 9 * size


def copies(copied: Callable[[gym.Env[str, str]], object]) -> Work:
    """Copies of a game in mid-episode."""
    env = gym.make(GAME).unwrapped
    env.reset(seed=0)
    env.step("B2")
    while True:
        copied(env)
        yield 1


def pickled(env: gym.Env[str, str]) -> object:
    """The environment, through bytes."""
    return pickle.loads(pickle.dumps(env))


def grades(text: str) -> Work:
    """Grades of one answer."""
    while True:
        for _ in range(100):
            grade_number(text, "85")
        yield 100


LINES = (
    Measured("TicTacToe, gym.make: steps", game_steps, 150_000),
    Measured("TicTacToe, perfect opponent: steps", lambda: game_steps(opponent="perfect")),
    Measured("TicTacToe, AEC: steps, order kept", turns_in_pairs, 120_000),
    Measured("TicTacToe, Parallel: joint steps", joint_steps),
    Measured("TicTacToe, SyncVectorEnv of 1: steps", lambda: vector_steps(1)),
    Measured("TicTacToe, SyncVectorEnv of 8: steps", lambda: vector_steps(8)),
    Measured("TicTacToe, SyncVectorEnv of 64: steps", lambda: vector_steps(64)),
    Measured("TicTacToe: resets", lambda: resets(seeded=False)),
    Measured("TicTacToe: resets with seeds", lambda: resets(seeded=True)),
    Measured("TicTacToe: deep copies in mid-game", lambda: copies(copy.deepcopy)),
    Measured("TicTacToe: pickled and back", lambda: copies(pickled)),
    Measured("gym.make", makes),
    Measured("GSM8K: episodes", lambda: answers(QUESTIONS, seeded=False), 150_000),
    Measured("GSM8K: episodes with seeds", lambda: answers(QUESTIONS, seeded=True), 60_000),
    Measured("Arithmetic: episodes", lambda: answers(SUMS, seeded=False)),
    Measured("Arithmetic: episodes with seeds", lambda: answers(SUMS, seeded=True)),
    *(
        Measured(f"grades: {name}", lambda text=text: grades(text), 200_000)
        for name, text in ANSWERS.items()
    ),
)


def best_rate(work: Work, seconds: float) -> float:
    """Units per CPU-second in the best of the repeats."""
    next(work)
    rates = []
    for _ in range(REPEATS):
        start, units, spent = time.process_time(), 0, 0.0
        while spent < seconds:
            units += next(work)
            spent = time.process_time() - start
        rates.append(units / spent)
    return max(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.3, help="CPU-seconds of each repeat")
    seconds = parser.parse_args().seconds
    print(f"{'what':40}{'per CPU-second':>16}{'goal':>10}")
    for line in LINES:
        goal = f"{line.goal:,}" if line.goal else ""
        print(f"{line.what:40}{best_rate(line.work(), seconds):16,.0f}{goal:>10}", flush=True)


if __name__ == "__main__":
    main()
