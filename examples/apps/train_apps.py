"""GRPO on APPS: a chat model writes programs, which hidden tests judge in a sandbox.

    ludic serve Qwen/Qwen2.5-Coder-0.5B-Instruct --port 8000        # on one GPU
    python examples/apps/train_apps.py --model Qwen/Qwen2.5-Coder-0.5B-Instruct \
        --servers http://localhost:8000 --split train --device cuda:1 --updates 500
    python examples/apps/train_apps.py --offline            # the same code, on an untrained model

Rows of APPS ask for a program that reads stdin, for a function, or for a method of a class. Without
--split, three rows of these kinds, below, are played. Offline, a tiny random model plays them:
everything runs, nothing is learned.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import ludic_gym as lg
import ludic_train as lt

ENV_ID = "ludic/StdinStdout-v0"


def row(question: str, tests: dict[str, Any], solution: str, starter: str = "") -> dict[str, str]:
    """A row in the fields of APPS: tests and solutions are JSON in texts."""
    packed = {"input_output": json.dumps(tests), "solutions": json.dumps([solution])}
    return {"question": question, "starter_code": starter, **packed}


ROWS = (
    row(
        "Read two integers from one line and write the larger one.",
        {"inputs": ["3 5\n", "-1 -4\n", "7 7\n"], "outputs": ["5\n", "-1\n", "7\n"]},
        "print(max(map(int, input().split())))",
    ),
    row(
        "Count the vowels (a, e, i, o, u) of a text.",
        {"fn_name": "vowels", "inputs": [["banana"], ["xyz"], [""]], "outputs": [[3], [0], [0]]},
        "def vowels(text):\n    return sum(letter in 'aeiou' for letter in text)",
        "def vowels(text):",
    ),
    row(
        "Return the numbers that are greater than the one before them.",
        {"fn_name": "rises", "inputs": [[[1, 3, 2, 4]], [[5, 5]]], "outputs": [[3, 4], []]},
        "class Solution:\n    def rises(self, nums: List[int]) -> List[int]:\n"
        "        return [b for a, b in zip(nums, nums[1:]) if b > a]",
        "class Solution:\n    def rises(self, nums: List[int]) -> List[int]:",
    ),
)


def opened(args: argparse.Namespace) -> lt.Learner:
    """The model, and the client that samples from it."""
    if args.offline:
        return lt.learner_from_nothing([], lg.Harness(reply_tokens=args.max_tokens), seed=0)
    return lt.learner_from_model(
        args.model, max_tokens=args.max_tokens, lora_rank=16, seed=0, servers=args.servers
    )


async def train(args: argparse.Namespace, env_kwargs: dict[str, Any]) -> None:
    """Make the updates, printing the mean reward of each, and save the model."""
    learner = opened(args)

    def make_policy(env: lg.Env) -> lg.Policy:
        return lg.RejectCutOff(lg.ChatPolicy(learner.client))

    # An untrained model earns the same everywhere, and such groups would all be left out.
    algo = lt.grpo(filter=None) if args.offline else lt.grpo()
    sampling = lg.Sampling(max_tokens=args.max_tokens)
    source = lt.RolloutBatchSource(
        lg.dataset_tasks(ENV_ID, env_kwargs, shuffle_seed=0, sampling=sampling),
        make_policy,
        groups_per_batch=args.groups,
        group_size=args.group_size,
    )
    cfg = lt.TrainerConfig(device=args.device, lr=args.lr, warmup_updates=10)
    trainer = lt.Trainer(learner.model, algo, source, learner.publisher, cfg)

    def report(update: int, metrics: lt.Metrics) -> None:
        print(f"update {update:3d}  reward {metrics['reward'].value:.3f}", flush=True)

    await trainer.train(args.updates, on_update=report)
    if args.out is not None:
        lt.save_model(learner.model, learner.tokenizer, args.out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="Qwen/Qwen2.5-Coder-0.5B-Instruct", help="folder or id")
    parser.add_argument("--servers", nargs="*", default=[], help="addresses of `ludic serve`")
    parser.add_argument("--offline", action="store_true", help="a tiny model made here")
    parser.add_argument("--split", help="train or test of APPS; left out, the rows above")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--out", type=Path, help="where the adapters are saved")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "apps.jsonl"
        file.write_text("\n".join(map(json.dumps, ROWS)))
        given = {"split": arguments.split} if arguments.split else {"data": str(file)}
        # Partial credit: the share of tests that pass, since few first tries pass all.
        asyncio.run(train(arguments, {**given, "partial_credit": True}))
