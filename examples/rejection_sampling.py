"""Rejection sampling: play, write to a file, imitate the best of what the file holds.

    python examples/rejection_sampling.py [--updates 30]

The task is to answer with a digit above the one that is asked about. Sampling and learning share
nothing but the file, so they could as well run on different days, or be different models'.
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

from ludic_gym.envs.core.base import TextEnv, Turn, end
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.records import read_rollouts, recorded
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.rollout.groups import grouped
from ludic_gym.types import Env, Sampling, Task
from ludic_train.algorithms.presets import make_rejection_sampling
from ludic_train.inference.client import EmbeddedChatClient
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.publishers.base import InProcessPublisher
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.recorded import recorded_items
from ludic_train.trainer.trainer import Trainer, TrainerConfig

ENV_ID = "example/HigherDigit-v0"
BATCH = 8


class HigherDigitEnv(TextEnv):
    """One question, one answer: reward 1 for a digit above the one in the question, else 0."""

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw a limit and ask for a digit above it."""
        self._limit = int(self.np_random.integers(0, 4))
        return f"A digit above {self._limit}, please.", ""

    def turn(self, action: str) -> Turn:
        """Reward a digit above the limit."""
        digit = action.strip()
        correct = digit in set("0123456789") and int(digit) > self._limit
        return end(success=correct, reward=float(correct))


gym.register(ENV_ID, HigherDigitEnv)


def tasks() -> Iterator[Task]:
    """Questions without end, each in a group of 16 samples."""
    questions = (
        Task(env_id=ENV_ID, seed=i, sampling=Sampling(max_tokens=1, seed=i)) for i in count()
    )
    return grouped(questions, 16)


async def play(tasks: Iterator[Task], client: EmbeddedChatClient, path: Path) -> float:
    """Append 512 episodes to the file; the mean reward."""

    def make_policy(env: Env) -> ChatPolicy:
        return ChatPolicy(client)

    episodes = run_episodes(islice(tasks, 512), make_policy, concurrency=512)
    rewards = [e.rollouts[0].total_reward async for e in recorded(episodes, path)]
    return sum(rewards) / len(rewards)


async def train(updates: int, path: Path) -> float:
    """The mean reward of the last episodes played."""
    tokenizer = make_tokenizer(["A digit above 0, please."])
    model = make_tiny_model(tokenizer)
    client = EmbeddedChatClient(model, tokenizer)
    algo = make_rejection_sampling(best=2)
    questions = tasks()
    reward = 0.0
    for update in range(1, updates + 1):
        reward = await play(questions, client, path)
        print(f"update {update:3d}  reward {reward:.3f}")
        items = recorded_items(read_rollouts(path), algo)
        source = OfflineBatchSource(items, batch_size=min(BATCH, len(items)), seed=update)
        cfg = TrainerConfig(lr=2e-3)
        await Trainer(model, algo, source, InProcessPublisher(client), cfg).train(8)
    return reward


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--out", type=Path, help="the file of episodes; left out, a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(train(args.updates, args.out or Path(folder) / "episodes.jsonl"))
