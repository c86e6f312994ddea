"""Rates of environments, vector environments and graders, beside peers and limits.

    python benchmarks/envs.py [--seconds 0.1] [--rounds 7]

Play is random, with a new seed for every episode. Peers are TextArena, GEM and PettingZoo's
Tic-Tac-Toe, on boards of the same size; those that are not installed are left out, and
`make bench-peers` installs them. The limit is the least that any environment could cost.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial

import gymnasium as gym
import harness.env_loads as loads
from gymnasium.vector import SyncVectorEnv
from harness.rates import Line, Work, print_table
from peers.env_suites import gem_games, pettingzoo_games, textarena_games

from ludic_gym.graders.numeric import grade_number
from ludic_gym.vector.ragged import RaggedVectorEnv, make_ragged

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
            ours=partial(loads.steps, env_id, seeded=seeded, **size),
            peers={f"GEM {name}-v0-easy": partial(gem_games, f"{name}-v0-easy", seeded=seeded)},
            goal_ratio=1.0,
        )
        for seeded in (True, False)
        for name, (env_id, size) in BOARDS.items()
    ]


def vector_lines() -> list[Line]:
    """RaggedVectorEnv beside SyncVectorEnv."""

    def games(size: int) -> Callable[[], Work]:
        return lambda: loads.vector_steps(loads.sync_games(size))

    bare = [loads.Bare] * 64
    return [
        *(
            Line(
                what=f"{size} Tic-Tac-Toe, RaggedVectorEnv: steps",
                ours=lambda n=size: loads.vector_steps(make_ragged(loads.GAME, n)),
                peers={"SyncVectorEnv": games(size)},
                limit=("one env alone", lambda: loads.lone_steps(partial(gym.make, loads.GAME))),
                goal_ratio=1.2,
            )
            for size in (8, 64, 512)
        ),
        Line(
            what="64 bare envs, RaggedVectorEnv: steps",
            ours=lambda: loads.vector_steps(RaggedVectorEnv(bare)),
            peers={"SyncVectorEnv": lambda: loads.vector_steps(SyncVectorEnv(bare))},
            limit=("one env alone", lambda: loads.lone_steps(loads.Bare)),
            goal_ratio=1.2,
        ),
    ]


LINES = (
    Line(
        what="Tic-Tac-Toe, gym.make: steps",
        ours=partial(loads.steps, loads.GAME),
        peers={"TextArena TicTacToe-v0": textarena_games},
        limit=("generators, one per seed", loads.generators),
        goal=95_000,
    ),
    Line(
        what="Tic-Tac-Toe, perfect opponent: steps",
        ours=partial(loads.steps, loads.GAME, opponent="perfect"),
    ),
    Line(
        what="Tic-Tac-Toe, AEC: moves",
        ours=loads.moves_in_pairs,
        peers={"PettingZoo tictactoe_v3": pettingzoo_games},
    ),
    Line(what="Tic-Tac-Toe, Parallel: joint steps", ours=loads.joint_steps),
    *board_lines(),
    *(
        Line(
            what=f"{name}: episodes",
            ours=partial(loads.answers, env_id),
            limit=("generators, one per seed", loads.generators),
            goal=goal,
        )
        for name, env_id, goal in (
            ("Arithmetic", loads.SUMS, 45_000),
            ("GSM8K", loads.QUESTIONS, 50_000),
        )
    ),
    *vector_lines(),
    *(
        Line(
            what=f"grade_number: {name}",
            ours=partial(grades, text),
            limit=("one search of a regex", partial(searches, text)),
            goal=60_000 if len(text) > 100 else 0,
        )
        for name, text in ANSWERS.items()
    ),
    Line(what="gym.make", ours=loads.makes),
    Line(what="Tic-Tac-Toe: deep copies in mid-game", ours=loads.deep_copies),
    Line(what="Tic-Tac-Toe: pickled and back", ours=loads.pickles),
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
