"""Programs that run in a sandbox, and a policy that learns to write a part of one by GRPO.

    python examples/code_exec/fill_in.py [--updates 30]

A function has a hole; the policy, a random model, writes one token into it. The function then runs
in a sandbox, where hidden calls test it. Of some 300 tokens few make a valid program. Equal ones
are run once.
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

import ludic_gym as lg
import ludic_train as lt

HOLE = "def f(x, y):\n    return x {} y"
# Only - and ^ pass these calls.
ROW = {"prompt": "-", "name": "f", "calls": [[5, 1], [7, 2], [9, 8]], "expected": [4, 5, 1]}


def make_env(data: str) -> lg.Env:
    """The environment for functions, whose actions are put into the hole."""
    functions: lg.Env = gym.make("ludic/PythonFunctions-v0", data=data)
    return gym.wrappers.TransformAction(functions, HOLE.format, functions.action_space)


gym.register("example/FillIn-v0", make_env)


def tasks(data: str) -> Iterator[lg.Task]:
    """The same hole without end, each time with another sampling seed."""
    for i in count():
        sampling = lg.Sampling(max_tokens=1, seed=i)
        yield lg.Task(env_id="example/FillIn-v0", kwargs={"data": data}, seed=i, sampling=sampling)


async def train(updates: int, data: str) -> None:
    """Learn; prints the mean reward of the programs after each update."""
    tokenizer = lt.make_tokenizer(["-"])
    model = lt.make_tiny_model(tokenizer)
    client = lt.LocalChatClient(model, tokenizer)

    def make_policy(env: lg.Env) -> lg.ChatPolicy:
        return lg.ChatPolicy(client, system_prompt="")

    source = lt.RolloutBatchSource(tasks(data), make_policy, groups_per_batch=16, group_size=16)
    cfg = lt.TrainerConfig(lr=3e-3)
    trainer = lt.Trainer(model, lt.grpo(), source, lt.InProcessPublisher(client), cfg)

    def report(update: int, metrics: lt.Metrics) -> None:
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
