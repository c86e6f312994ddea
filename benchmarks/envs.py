"""Rates of environments, vector environments and graders, beside peers and limits.

    python benchmarks/envs.py [--seconds 0.1] [--rounds 7]

Play is random, with a new seed for every episode. Peers are TextArena, GEM and PettingZoo's
Tic-Tac-Toe, on boards of the same size; those that are not installed are left out, and
`make bench-peers` installs them. The limit is the least that any environment could cost.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import re
from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

import gymnasium as gym
import pettingzoo
from gymnasium.utils import seeding
from rates import Line, Work, print_table

import ludic_gym  # noqa: F401  registers the environments
from ludic_gym.graders.numeric import grade_number


def textarena_games() -> Work:
    """Steps of both players of TextArena's Tic-Tac-Toe in random free cells."""
    import textarena

    rng, seeds = random.Random(0), count()
    # Without its wrapper, whose observations grow from game to game.
    env = textarena.make("TicTacToe-v0-raw")
    while True:
        # It prints while it is played.
        with contextlib.redirect_stdout(io.StringIO()):
            env.reset(num_players=2, seed=next(seeds))
            over, moves = False, 0
            cells = rng.sample(range(9), 9)
            while not over:
                env.get_observation()
                over, _ = env.step(f"[{cells[moves]}]")
                moves += 1
            env.close()
        yield moves


def gem_games(name: str, *, seeded: bool) -> Work:
    """Steps of GEM's game with actions that its own sampler drew beforehand."""
    with contextlib.redirect_stdout(io.StringIO()):
        import gem

    random.seed(0)
    env = gem.make(f"game:{name}")
    actions = [env.sample_random_action() for _ in range(997)]
    yield from played(env, actions, seeded=seeded)


def pettingzoo_games() -> Work:
    """Moves of both agents of PettingZoo's Tic-Tac-Toe in random free cells."""
    from pettingzoo.classic.tictactoe import tictactoe

    env = tictactoe.env()
    rng, seeds = random.Random(0), count()
    while True:
        env.reset(seed=next(seeds))
        moves = 0
        for _ in env.agent_iter():
            observation, _, terminated, truncated, info = env.last()
            mask = observation["action_mask"] if "action_mask" in observation else info["mask"]
            over = terminated or truncated
            env.step(None if over else rng.choice(mask.nonzero()[0].tolist()))
            moves += not over
        yield moves


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


# GEM's "easy" boards, and ours of the same size.
BOARDS: dict[str, tuple[str, dict[str, int]]] = {
    "GuessTheNumber": ("ludic/GuessTheNumber-v0", {"high": 10, "turns": 4}),
    "Mastermind": ("ludic/Mastermind-v0", {"letters": 6, "length": 2, "turns": 10}),
    "Minesweeper": ("ludic/Minesweeper-v0", {"size": 5, "mines": 5}),
}
SENTENCE = "Each crate holds 12 jars, so 7 crates hold 84 jars and one more is left on the shelf. "
REASONING = SENTENCE * 15
ANSWERS = {
    "1.3 kB, tag": REASONING + "<answer>85</answer>",
    "1.3 kB, boxed": REASONING + "\\boxed{85}",
    "1.3 kB, hashes": REASONING + "\n#### 85",
    "1.3 kB, phrase": REASONING + "The answer is 85.",
    "1.3 kB, none": REASONING,
    "tag only": "<answer>85</answer>",
}
_WORD = re.compile(r"\banswer\b", re.IGNORECASE)


def grades(text: str) -> Work:
    """Grades of one answer."""
    while True:
        for _ in range(100):
            grade_number(text, "85")
        yield 100


def searches(text: str) -> Work:
    """Searches of a compiled expression over the text."""
    while True:
        for _ in range(100):
            _WORD.search(text)
        yield 100


def board_lines() -> list[Line]:
    """Our games and GEM's, with and without seeds."""
    return [
        Line(
            what=f"{name}: steps{'' if seeded else ', no seeds'}",
            ours=partial(steps, env_id, seeded=seeded, **size),
            peers={f"GEM {name}-v0-easy": partial(gem_games, f"{name}-v0-easy", seeded=seeded)},
            # Ours draws boards until one can be won by logic alone.
            goal_ratio=0.0 if name == "Minesweeper" else 1.0,
        )
        for seeded in (True, False)
        for name, (env_id, size) in BOARDS.items()
    ]


LINES = (
    Line(
        what="Tic-Tac-Toe, gym.make: steps",
        ours=partial(steps, GAME, opponent="random"),
        peers={"TextArena TicTacToe-v0": textarena_games},
        limit=("generators, one per seed", generators),
        goal=95_000,
    ),
    Line(
        what="Tic-Tac-Toe, perfect opponent: steps",
        ours=partial(steps, GAME, opponent="perfect"),
    ),
    Line(
        what="Tic-Tac-Toe, AEC: moves",
        ours=moves_in_pairs,
        peers={"PettingZoo tictactoe_v3": pettingzoo_games},
    ),
    Line(what="Tic-Tac-Toe, Parallel: joint steps", ours=joint_steps),
    *board_lines(),
    *(
        Line(
            what=f"{name}: episodes",
            ours=partial(answers, env_id),
            limit=("generators, one per seed", generators),
            goal=goal,
        )
        for name, env_id, goal in (
            ("Arithmetic", SUMS, 45_000),
            ("GSM8K", QUESTIONS, 50_000),
        )
    ),
    *(
        Line(
            what=f"grade_number: {name}",
            ours=partial(grades, text),
            limit=("one search of a regex", partial(searches, text)),
            goal=60_000 if len(text) > 100 else 0,
        )
        for name, text in ANSWERS.items()
    ),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.1, help="CPU-seconds of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="lines that contain this text")
    args = parser.parse_args()
    chosen = [line for line in LINES if args.only in line.what]
    print_table("environments", chosen, seconds=args.seconds, rounds=args.rounds)


if __name__ == "__main__":
    main()
