"""GRPO on GSM8K: a chat model thinks, answers in a tag, and learns from being right.

    ludic serve Qwen/Qwen2.5-0.5B-Instruct --port 8000        # on one GPU
    python examples/gsm8k/train_gsm8k.py --model Qwen/Qwen2.5-0.5B-Instruct \
        --servers http://localhost:8000 --split train --device cuda:1 --updates 500
    python examples/gsm8k/train_gsm8k.py --offline            # the same code, on an untrained model

Offline, a tiny random model answers the bundled questions: nothing is learned, everything runs.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import gymnasium as gym

import ludic_gym  # noqa: F401 - makes the ids known
from ludic_gym.parsers import compose_parsers, think_prefix_parser, xml_tag_parser
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.parsed import Parsed, RejectCutOff
from ludic_gym.types import Env, Policy, Sampling, Task
from ludic_train.algorithms.presets import grpo
from ludic_train.inference.policy_spec import PolicySpec
from ludic_train.metrics import Metrics
from ludic_train.models.load import save_model
from ludic_train.runs.learner import Learner, learner_from_model, learner_from_nothing
from ludic_train.sources.rollouts import RolloutBatchSource
from ludic_train.trainer.trainer import Trainer, TrainerConfig

PROMPT = "Think inside <think></think>, then give just the number inside <answer></answer>."


def tasks(split: str | None, max_tokens: int) -> Iterator[Task]:
    """Questions without end, each row as often as any other."""
    kwargs = {} if split is None else {"split": split}
    rows = gym.make("ludic/GSM8K-v0", **kwargs).unwrapped.num_rows
    for i in count():
        yield Task(
            env_id="ludic/GSM8K-v0",
            kwargs=kwargs,
            seed=i,
            options={"row": i % rows},
            sampling=Sampling(max_tokens=max_tokens, seed=i),
            # What cannot be parsed ends the episode too: there is one attempt.
            max_turns=1,
        )


def opened(args: argparse.Namespace) -> Learner:
    """The model, and the client that samples from it."""
    if args.offline:
        spec = PolicySpec(max_tokens=args.max_tokens)
        return learner_from_nothing([], spec, seed=0)
    return learner_from_model(
        args.model, max_tokens=args.max_tokens, lora_rank=16, seed=0, sampler=args.sampler
    )


async def train(args: argparse.Namespace) -> None:
    """Make the updates, printing the mean reward of each, and save the model."""
    learner = opened(args)
    parser = compose_parsers(think_prefix_parser(), xml_tag_parser("answer"))

    def make_policy(env: Env) -> Policy:
        chat = ChatPolicy(learner.client, system_prompt=PROMPT)
        return Parsed(RejectCutOff(chat), parser)

    algo = grpo()
    if args.offline:
        # An untrained model earns the same everywhere, and such groups would all be left out.
        algo = replace(algo, filter=None)
    source = RolloutBatchSource(
        tasks(args.split, args.max_tokens),
        make_policy,
        algo,
        groups_per_batch=args.groups,
        group_size=args.group_size,
    )
    cfg = TrainerConfig(device=args.device, lr=args.lr, warmup_updates=10)
    trainer = Trainer(learner.model, algo, source, learner.publisher, cfg)

    def report(update: int, metrics: Metrics) -> None:
        print(f"update {update:3d}  reward {metrics['reward'].value:.3f}", flush=True)

    await trainer.train(args.updates, on_update=report)
    if args.out is not None:
        save_model(learner.model, learner.tokenizer, args.out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct", help="folder or hub id")
    parser.add_argument("--servers", help="address of `ludic serve`; left out, it samples itself")
    parser.add_argument("--offline", action="store_true", help="a tiny model made here")
    parser.add_argument("--split", help="train or test; left out, the bundled sample")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--out", type=Path, help="where the adapters are saved")
    asyncio.run(train(parser.parse_args()))
