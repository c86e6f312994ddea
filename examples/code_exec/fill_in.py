"""Programs that run in a sandbox, and a policy that learns to write a part of one by GRPO.

    python examples/code_exec/fill_in.py [--updates 30]

A function has a hole; the policy, a random model, writes one token into it. The function then runs
in a sandbox, where hidden calls test it. Of some 300 tokens few make a program at all. The same
program is run once, however often it is written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import gymnasium as gym

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.types import Env, Sampling, Task
from ludic_train.algorithms.presets import grpo
from ludic_train.inference.client import LocalChatClient
from ludic_train.metrics import Metrics
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.publishers.base import InProcessPublisher
from ludic_train.sources.rollouts import RolloutBatchSource
from ludic_train.trainer.trainer import Trainer, TrainerConfig

HOLE = "def f(x, y):\n    return x {} y"
# Both - and ^ do it for these, and nothing else does.
ROW = {"prompt": "-", "name": "f", "calls": [[5, 1], [7, 2], [9, 8]], "expected": [4, 5, 1]}


def make_env(data: str) -> Env:
    """The environment for functions, whose actions are put into the hole."""
    functions: Env = gym.make("ludic/PythonFunctions-v0", data=data)
    return gym.wrappers.TransformAction(functions, HOLE.format, functions.action_space)


gym.register("example/FillIn-v0", make_env)


def tasks(data: str) -> Iterator[Task]:
    """The same hole for ever, each time with new sampling seeds."""
    for i in count():
        sampling = Sampling(max_tokens=1, seed=i)
        yield Task(env_id="example/FillIn-v0", kwargs={"data": data}, seed=i, sampling=sampling)


async def train(updates: int, data: str) -> None:
    """Learn, and say after each update what the programs earned."""
    tokenizer = make_tokenizer(["-"])
    model = make_tiny_model(tokenizer)
    client = LocalChatClient(model, tokenizer)

    def make_policy(env: Env) -> ChatPolicy:
        return ChatPolicy(client, system_prompt="")

    algo = grpo()
    source = RolloutBatchSource(tasks(data), make_policy, algo, groups_per_batch=16, group_size=16)
    cfg = TrainerConfig(lr=3e-3)
    trainer = Trainer(model, algo, source, InProcessPublisher(client), cfg)

    def report(update: int, metrics: Metrics) -> None:
        print(f"update {update:3d}  reward {metrics['reward'].value:.3f}")

    await trainer.train(updates, on_update=report)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "holes.jsonl"
        file.write_text(json.dumps(ROW))
        asyncio.run(train(arguments.updates, str(file)))
