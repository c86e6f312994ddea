"""Rejection sampling on Tic-Tac-Toe: play, write a file of episodes, imitate the best of them.

    python examples/rejection_sampling.py [--updates 10]

Sampling and learning share nothing but the file, so they could also run on different days, or with
different models. `lt.train(..., algo="rejection_sampling")` does the same without a file.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import tyro

import ludic_gym as lg
import ludic_train as lt

ENV_ID, GAMES, GROUP_SIZE = "ludic/TicTacToe-v0", 512, 8
HARNESS = lg.Harness(context="latest", system_prompt="")


def tasks() -> Iterator[lg.Task]:
    """Games against random play without end, each in a group."""
    rival = {"opponent": "random"}
    games = (
        lg.Task(env_id=ENV_ID, kwargs=rival, seed=i, sampling=lg.Sampling(max_tokens=4, seed=i))
        for i in count()
    )
    return lg.grouped(games, GROUP_SIZE)


async def recorded(tasks: Iterator[lg.Task], policy: lg.MakePolicy, path: Path) -> float:
    """Append GAMES games to the file; the share of them that was won."""
    episodes = lg.run_episodes(islice(tasks, GAMES), policy, concurrency=GAMES)
    results = [e.rollouts[0].total_reward async for e in lg.record_episodes(episodes, path)]
    return sum(result == 1 for result in results) / len(results)


async def train(updates: int, folder: Path) -> float:
    """Share of the last games that the model won. An update is a file, and 8 steps on its best."""
    random = folder / "random.jsonl"
    await recorded(tasks(), lg.RandomPolicy, random)
    known = list(lg.read_rollouts(random))
    tokenizer = lt.make_tokenizer([step.observation for r in known for step in r.steps])
    model = lt.make_tiny_model(tokenizer)
    client = lt.LocalChatClient(model, tokenizer)
    publisher = lt.InProcessPublisher(client)

    async def imitate(rollouts: list[lg.Rollout], algo: lt.RLAlgorithm, steps: int) -> None:
        source = lt.OfflineBatchSource(rollouts, batch_size=32)
        cfg = lt.TrainerConfig(lr=2e-3)
        await lt.Trainer(model, algo, source, publisher, cfg).train(steps)

    # The form of a move comes first.
    written = [lt.with_token_ids(rollout, tokenizer, HARNESS.new_context()) for rollout in known]
    await imitate(written, lt.sft(), 60)
    games, won = tasks(), 0.0
    for update in range(1, updates + 1):
        path = folder / f"update-{update}.jsonl"
        won = await recorded(games, HARNESS.make_policy(client), path)
        print(f"update {update:3d}  won {won:.3f}", flush=True)
        played = lt.recorded_rollouts(lg.read_rollouts(path))
        await imitate(list(played), lt.rejection_sampling(best=2), 8)
    return won


def main(updates: int = 10, out: Path | None = None) -> None:
    """Play and imitate in turn; the files are kept in `out`."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(train(updates, out or Path(folder)))


if __name__ == "__main__":
    tyro.cli(main)
