"""Random play in the environments of other libraries, each imported at its first use.

Raises ImportError there if the library is not installed.
"""

from __future__ import annotations

import contextlib
import io
import random
from itertools import count

from harness.env_loads import played
from harness.rates import Work


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
