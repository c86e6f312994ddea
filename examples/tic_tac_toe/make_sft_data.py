"""Demonstrations for supervised training: games of perfect play, as records of episodes.

python examples/tic_tac_toe/make_sft_data.py --episodes 4000 --out data/perfect.jsonl
python examples/tic_tac_toe/train_sft.py --data data/perfect.jsonl --out runs/sft
ludic bench ludic/TicTacToe-v0 --policy runs/sft --env-kwargs opponent=perfect
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import ludic_gym as lg


async def make(episodes: int, path: Path) -> None:
    """Append the games to the file; the opponent moves at random, so that positions differ."""
    tasks = (
        lg.Task(env_id="ludic/TicTacToe-v0", kwargs={"opponent": "random"}, seed=seed)
        for seed in range(episodes)
    )
    games, won = 0, 0.0
    async for episode in lg.record_episodes(lg.run_episodes(tasks, lg.OraclePolicy), path):
        games += 1
        won += episode.rollouts[0].total_reward == 1.0
    print(f"{games} games in {path}, {won / games:.1%} won")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=4_000)
    parser.add_argument("--out", type=Path, default=Path("runs/perfect.jsonl"))
    args = parser.parse_args()
    asyncio.run(make(args.episodes, args.out))
