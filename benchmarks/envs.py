"""Rates of environments and graders, in units per CPU-second of this process, best of 5.

python benchmarks/envs.py [--seconds 0.3] [--peers-python PATH]
    ours, beside those of others
python benchmarks/envs.py --all > envs_registry/speeds.py
    every environment of the catalogue

The others are TextArena, GEM and PettingZoo's Tic-Tac-Toe, in the same run. They may be installed
where this is, or in an environment of their own, whose Python --peers-python names.
"""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import gymnasium as gym
import pettingzoo
from gymnasium.vector import SyncVectorEnv, VectorEnv
from peers.rate import Work, best_rate, busy_share

import ludic_gym  # noqa: F401  registers the environments
from envs_registry.catalog import CATALOG
from ludic_gym.graders.numeric import grade_number
from ludic_gym.spaces import TEXT
from ludic_gym.vector.ragged import RaggedVectorEnv, make_ragged

PEERS = Path(__file__).parent / "peers" / "env_suites.py"
CELLS = tuple(row + column for row in "ABC" for column in "123")
GAME, SUMS, QUESTIONS = "ludic/TicTacToe-v0", "ludic/Arithmetic-v0", "ludic/GSM8K-v0"
SINGLE_PLAYER = {
    "GuessTheNumber": "ludic/GuessTheNumber-v0",
    "Mastermind": "ludic/Mastermind-v0",
    "Minesweeper": "ludic/Minesweeper-v0",
    "2048": "ludic/Game2048-v0",
    "Sokoban": "ludic/Sokoban-v0",
}
ANSWERS = {
    "bare": "85",
    "tag": "It takes 40 + 45 pens.\n<answer>85</answer>",
    "boxed": "It takes 40 + 45 pens.\n\\boxed{85}",
    "hashes": "It takes 40 + 45 pens.\n#### 85",
    "phrase": "It takes 40 + 45 pens. The answer is 85.",
    "wrong": "It takes 40 + 45 pens, I think.",
}

# What the others are held against: their lines by ours.
RIVALS = {
    "TicTacToe, gym.make: steps": (
        "TextArena TicTacToe-v0, made for every game",
        "TextArena TicTacToe-v0, made once",
        "GEM Minesweeper-v0-easy",
        "GEM FifteenPuzzle-v0-easy",
    ),
    "TicTacToe, AEC: steps, order kept": (
        "PettingZoo tictactoe_v3 env()",
        "PettingZoo tictactoe_v3 raw_env()",
    ),
    "GuessTheNumber: steps": ("GEM GuessTheNumber-v0-easy",),
    "Mastermind: steps": ("GEM Mastermind-v0-easy",),
    "Minesweeper: steps": ("GEM Minesweeper-v0-easy",),
    "2048: steps": ("GEM Game2048-v0-easy",),
    "Sokoban: steps": ("GEM Sokoban-v0-easy",),
    "64 envs with infos, RaggedVectorEnv: steps": ("64 envs with infos, SyncVectorEnv: steps",),
    "64 TicTacToe, RaggedVectorEnv: steps": ("64 TicTacToe, SyncVectorEnv: steps",),
}


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
        for cell in CELLS:
            if env.agents:
                env.step(dict.fromkeys(env.agents, cell))
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
    """New games, without a step."""
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


def drawn_steps(env_id: str) -> Work:
    """Steps by 200 actions that are legal at the start, or any text, drawn beforehand."""
    env = gym.make(env_id)
    env.reset(seed=0)
    rng, legal = random.Random(0), env.unwrapped.legal_actions()
    env.action_space.seed(0)
    actions = [rng.choice(legal) if legal else env.action_space.sample() for _ in range(200)]
    turn = 0
    while True:
        env.reset()
        steps, over = 0, False
        while not over:
            _, _, terminated, truncated, _ = env.step(actions[turn % len(actions)])
            over = terminated or truncated
            turn += 1
            steps += 1
        yield steps


class TypedInfos(gym.Env[str, str]):
    """Does nothing, and says four things about it."""

    observation_space = TEXT
    action_space = TEXT

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[str, dict]:
        """Nothing."""
        return "", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        """Nothing."""
        return "x", 0.0, False, False, {"turn": 1, "score": 0.5, "legal": True, "note": "x"}


def vector_steps(vector: VectorEnv, actions: Sequence[str]) -> Work:
    """Steps of all environments of a vector, each turn with the next action for all."""
    vector.reset(seed=0)
    while True:
        for action in actions:
            vector.step((action,) * vector.num_envs)
        yield len(actions) * vector.num_envs


def sync_game(size: int) -> VectorEnv:
    """Tic-Tac-Toe in Gymnasium's vector environment."""
    return gym.make_vec(GAME, size, vectorization_mode="sync")


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
    *(
        Measured(
            f"{size} TicTacToe, SyncVectorEnv: steps",
            lambda n=size: vector_steps(sync_game(n), CELLS),
        )
        for size in (1, 8, 64)
    ),
    Measured(
        "64 TicTacToe, RaggedVectorEnv: steps", lambda: vector_steps(make_ragged(GAME, 64), CELLS)
    ),
    Measured(
        "64 envs with infos, SyncVectorEnv: steps",
        lambda: vector_steps(SyncVectorEnv([TypedInfos] * 64), ["x"]),
    ),
    Measured(
        "64 envs with infos, RaggedVectorEnv: steps",
        lambda: vector_steps(RaggedVectorEnv([TypedInfos] * 64), ["x"]),
        300_000,
    ),
    *(
        Measured(f"{name}: steps", lambda env_id=env_id: drawn_steps(env_id))
        for name, env_id in SINGLE_PLAYER.items()
    ),
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


def peer_rates(python: str, seconds: float) -> dict[str, float]:
    """The rates of other libraries by name; what is missing is said on the way."""
    command = [python, PEERS, str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    missing = " ".join(line["missing"] for line in found if "missing" in line)
    if missing:
        print(f"\nnot compared with: {missing}. Install them in an environment of their own,")
        print(f"  python -m venv peers && peers/bin/pip install {missing},")
        print("and name it: --peers-python peers/bin/python")
    return {line["what"]: line["rate"] for line in found if "rate" in line}


def print_ours(seconds: float) -> dict[str, float]:
    """Our rates by name."""
    rates = {}
    print(f"{'what':46}{'per CPU-second':>16}{'goal':>10}")
    for line in LINES:
        goal = f"{line.goal:,}" if line.goal else ""
        rates[line.what] = best_rate(line.work(), seconds)
        print(f"{line.what:46}{rates[line.what]:16,.0f}{goal:>10}", flush=True)
    return rates


def print_comparison(ours: dict[str, float], theirs: dict[str, float]) -> None:
    """Our rates over those of others, where both are known."""
    print(f"\n{'ours':46}{'over':48}{'theirs':>12}{'ratio':>8}")
    for name, rivals in RIVALS.items():
        for rival in rivals:
            if rival in theirs:
                ratio = ours[name] / theirs[rival]
                print(f"{name:46}{rival:48}{theirs[rival]:12,.0f}{ratio:8.1f}", flush=True)


SPEEDS_FILE = '''\
"""Speeds of the environments: generated by `python benchmarks/envs.py --all`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Steps of random play per CPU-second, as a multiple of Tic-Tac-Toe's in the same run. Environments
# whose work is done by other processes are missing.
SPEEDS: Mapping[str, float] = MappingProxyType(
    {
'''


def print_speeds(seconds: float) -> None:
    """The file envs_registry/speeds.py."""
    rates, base = {}, []
    for entry in CATALOG:
        # Tic-Tac-Toe is measured again beside each: the machine may be faster later.
        base.append(best_rate(drawn_steps(GAME), seconds))
        usual = busy_share(drawn_steps(GAME), seconds)
        if busy_share(drawn_steps(entry.id), seconds) > usual / 2:
            rates[entry.id] = best_rate(drawn_steps(entry.id), seconds)
            print(f"{entry.id}: {rates[entry.id]:,.0f} steps/s", file=sys.stderr)
    speeds = {env_id: rate / median(base) for env_id, rate in rates.items()} | {GAME: 1.0}
    lines = (f'        "{env_id}": {float(f"{x:.2g}")},' for env_id, x in speeds.items())
    print(SPEEDS_FILE + "\n".join([*lines, "    }", ")"]))


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.3, help="CPU-seconds of each repeat")
    parser.add_argument(
        "--peers-python", default=sys.executable, help="a Python that has the others"
    )
    parser.add_argument("--all", action="store_true", help="write envs_registry/speeds.py instead")
    args = parser.parse_args()
    if args.all:
        print_speeds(args.seconds)
        return
    ours = print_ours(args.seconds)
    print_comparison(ours, ours | peer_rates(args.peers_python, args.seconds))


if __name__ == "__main__":
    main()
