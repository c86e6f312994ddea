"""A custom environment, and a policy that learns it by GRPO, from a random model on a CPU.

    python examples/own_env.py [--updates 20]

The task is to answer with an even digit. There are no demonstrations: out of some 300 tokens, the
model finds the five that are rewarded.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import gymnasium as gym

import ludic_gym as lg
import ludic_train as lt


class EvenDigitEnv(lg.TextEnv):
    """One question, one answer: reward 1 for an even digit, else 0."""

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Ask for an even digit."""
        return "An even digit, please.", ""

    def turn(self, action: str) -> lg.Turn:
        """Reward an even digit."""
        correct = action.strip() in set("02468")
        return lg.end(success=correct, reward=float(correct))


gym.register("example/EvenDigit-v0", f"{__name__}:EvenDigitEnv")


def tasks() -> Iterator[lg.Task]:
    """The same question without end, each time with another sampling seed."""
    for i in count():
        sampling = lg.Sampling(max_tokens=1, seed=i)
        yield lg.Task(env_id="example/EvenDigit-v0", seed=i, sampling=sampling)


async def train(updates: int) -> float:
    """Train; the share of even digits in the last batch."""
    tokenizer = lt.make_tokenizer(["An even digit, please."])
    model = lt.make_tiny_model(tokenizer)
    client = lt.LocalChatClient(model, tokenizer)

    def make_policy(env: lg.Env) -> lg.ChatPolicy:
        return lg.ChatPolicy(client)

    algo = lt.grpo()
    source = lt.RolloutBatchSource(tasks(), make_policy, groups_per_batch=16, group_size=16)
    cfg = lt.TrainerConfig(lr=3e-3)
    trainer = lt.Trainer(model, algo, source, lt.InProcessPublisher(client), cfg)
    rewards = []

    def report(update: int, metrics: lt.Metrics) -> None:
        rewards.append(metrics["reward"].value)
        print(f"update {update:3d}  reward {rewards[-1]:.3f}")

    await trainer.train(updates, on_update=report)
    return rewards[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=20)
    asyncio.run(train(parser.parse_args().updates))
