"""A curriculum: longer words to spell once the shorter ones are solved.

    python examples/curriculum/train_curriculum.py [--updates 120]

Each batch is played at the current length; its mean reward decides whether the length grows. For a
single environment, use the wrapper `lg.Curriculum`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import gymnasium as gym

import ludic_gym as lg
import ludic_train as lt

ENV_ID = "example/Echo-v0"
LETTERS, LONGEST, SOLVED = "abcd", 4, 0.8


class EchoEnv(lg.TextEnv):
    """Repeat the letters: the reward is the share of them in the right place.

    length: number of letters.
    """

    def __init__(self, length: int = 1, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._length = length

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Draw letters."""
        self._letters = "".join(lg.pick(self.np_random, LETTERS) for _ in range(self._length))
        return " ".join(self._letters), ""

    def turn(self, action: str) -> lg.Turn:
        """Reward the share of letters in the right place."""
        letters = action.split()
        right = sum(a == b for a, b in zip(letters, self._letters, strict=False)) / self._length
        return lg.end(success=right == 1.0, letters=right)


gym.register(ENV_ID, EchoEnv)


class Stages:
    """The current length: one letter more after each solved batch."""

    def __init__(self) -> None:
        self.length = 1

    def tasks(self) -> Iterator[lg.Task]:
        """Words of the current length, without end."""
        for i in count():
            sampling = lg.Sampling(max_tokens=2 * self.length, seed=i)
            yield lg.Task(env_id=ENV_ID, kwargs={"length": self.length}, seed=i, sampling=sampling)

    def note(self, rollouts: Sequence[lg.Rollout]) -> lt.Metrics:
        """The length of the batch; adds a letter if the batch was solved."""
        length, reward = self.length, sum(r.total_reward for r in rollouts) / len(rollouts)
        if reward >= SOLVED and length < LONGEST:
            self.length += 1
        return {"length": lt.Stat(length, 1)}


async def train(updates: int) -> int:
    """Train; the length reached."""
    tokenizer = lt.make_tokenizer([" ".join(LETTERS)])
    model = lt.make_tiny_model(tokenizer)
    client = lt.LocalChatClient(model, tokenizer)
    stages = Stages()

    def make_policy(env: lg.Env) -> lg.ChatPolicy:
        return lg.ChatPolicy(client)

    source = lt.RolloutBatchSource(
        stages.tasks(), make_policy, groups_per_batch=32, group_size=16, reducer=stages.note
    )
    algo, cfg = lt.grpo(entropy=0.05), lt.TrainerConfig(lr=2e-3)
    trainer = lt.Trainer(model, algo, source, lt.InProcessPublisher(client), cfg)

    def report(update: int, metrics: lt.Metrics) -> None:
        reward, length = metrics["reward"].value, metrics["length"].value
        print(f"update {update:3d}  reward {reward:.3f}  letters {length:.0f}", flush=True)

    await trainer.train(updates, on_update=report)
    return stages.length


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=120)
    asyncio.run(train(parser.parse_args().updates))
