"""Rates of other libraries' environments, as lines of JSON: {"what": ..., "rate": ...}.

Started by benchmarks/envs.py, in an environment that has them: `python env_suites.py SECONDS`. A
library that is not installed gives {"missing": its name on PyPI}.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import warnings
from collections.abc import Callable

from rate import Work, best_rate

warnings.simplefilter("ignore")
GEM_GAMES = (
    "GuessTheNumber-v0-easy",
    "Mastermind-v0-easy",
    "Minesweeper-v0-easy",
    "FifteenPuzzle-v0-easy",
    "Game2048-v0-easy",
    "Sokoban-v0-easy",
)


def textarena_games(*, fresh: bool) -> Work:
    """Both players of TextArena's Tic-Tac-Toe take the cells in order."""
    import textarena

    env = textarena.make("TicTacToe-v0")
    while True:
        if fresh:
            env = textarena.make("TicTacToe-v0")
        env.reset(num_players=2)
        over, cell = False, 0
        while not over:
            env.get_observation()
            over, _ = env.step(f"[{cell}]")
            cell += 1
        env.close()
        yield cell


def gem_games(name: str) -> Work:
    """GEM's game, played by actions that its own sampler drew beforehand."""
    import gem

    random.seed(0)
    env = gem.make(f"game:{name}")
    actions = [env.sample_random_action() for _ in range(200)]
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


def pettingzoo_games(*, raw: bool) -> Work:
    """Both agents of PettingZoo's Tic-Tac-Toe take the first free cell, and retire."""
    from pettingzoo.classic.tictactoe import tictactoe

    env = tictactoe.raw_env() if raw else tictactoe.env()
    while True:
        env.reset()
        steps = 0
        for _ in env.agent_iter():
            observation, _, terminated, truncated, info = env.last()
            mask = observation["action_mask"] if "action_mask" in observation else info["mask"]
            env.step(None if terminated or truncated else int(mask.argmax()))
            steps += 1
        yield steps


PEERS: dict[str, dict[str, Callable[[], Work]]] = {
    "textarena": {
        "TextArena TicTacToe-v0, made for every game": lambda: textarena_games(fresh=True),
        "TextArena TicTacToe-v0, made once": lambda: textarena_games(fresh=False),
    },
    "gem-llm": {f"GEM {name}": lambda name=name: gem_games(name) for name in GEM_GAMES},
    "'pettingzoo[classic]'": {
        "PettingZoo tictactoe_v3 env()": lambda: pettingzoo_games(raw=False),
        "PettingZoo tictactoe_v3 raw_env()": lambda: pettingzoo_games(raw=True),
    },
}


def main() -> None:
    """Print a line for every peer, or for its absence."""
    seconds = float(sys.argv[1])
    for package, lines in PEERS.items():
        for what, work in lines.items():
            # Some of them print while they are imported or played.
            with contextlib.redirect_stdout(io.StringIO()):
                try:
                    found: dict[str, object] = {"rate": best_rate(work(), seconds), "what": what}
                except ImportError:
                    found = {"missing": package}
            print(json.dumps(found), flush=True)
            if "missing" in found:
                break


if __name__ == "__main__":
    main()
