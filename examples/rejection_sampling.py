"""Rejection sampling: play, write a file of episodes, imitate the best of them.

    python examples/rejection_sampling.py [--updates 30]

The task is to reply with a digit above the one in the question. Sampling and learning share nothing
but the file, so they could also run on different days, or with different models.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Any

import gymnasium as gym

import ludic_gym as lg
import ludic_train as lt

ENV_ID = "example/HigherDigit-v0"
BATCH = 8


class HigherDigitEnv(lg.TextEnv):
    """One question, one answer: reward 1 for a digit above the one in the question, else 0."""

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw a limit and ask for a digit above it."""
        self._limit = int(self.np_random.integers(0, 4))
        return f"A digit above {self._limit}, please.", ""

    def turn(self, action: str) -> lg.Turn:
        """Reward a digit above the limit."""
        digit = action.strip()
        correct = digit in set("0123456789") and int(digit) > self._limit
        return lg.end(success=correct, reward=float(correct))


gym.register(ENV_ID, HigherDigitEnv)


def tasks() -> Iterator[lg.Task]:
    """Questions without end, each in a group of 16 samples."""
    questions = (
        lg.Task(env_id=ENV_ID, seed=i, sampling=lg.Sampling(max_tokens=1, seed=i)) for i in count()
    )
    return lg.grouped(questions, 16)


async def play(tasks: Iterator[lg.Task], client: lt.LocalChatClient, path: Path) -> float:
    """Append 512 episodes to the file; the mean reward."""

    def make_policy(env: lg.Env) -> lg.ChatPolicy:
        return lg.ChatPolicy(client)

    episodes = lg.run_episodes(islice(tasks, 512), make_policy, concurrency=512)
    rewards = [e.rollouts[0].total_reward async for e in lg.record_episodes(episodes, path)]
    return sum(rewards) / len(rewards)


async def train(updates: int, path: Path) -> float:
    """The mean reward of the last episodes played."""
    tokenizer = lt.make_tokenizer(["A digit above 0, please."])
    model = lt.make_tiny_model(tokenizer)
    client = lt.LocalChatClient(model, tokenizer)
    algo = lt.rejection_sampling(best=2)
    questions = tasks()
    reward = 0.0
    for update in range(1, updates + 1):
        reward = await play(questions, client, path)
        print(f"update {update:3d}  reward {reward:.3f}")
        rollouts = lt.recorded_rollouts(lg.read_rollouts(path))
        source = lt.OfflineBatchSource(rollouts, batch_size=BATCH, seed=update)
        cfg = lt.TrainerConfig(lr=2e-3)
        await lt.Trainer(model, algo, source, lt.InProcessPublisher(client), cfg).train(8)
    return reward


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--out", type=Path, help="the file of episodes; left out, a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(train(args.updates, args.out or Path(folder) / "episodes.jsonl"))
