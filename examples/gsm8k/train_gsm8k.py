"""GRPO on GSM8K: a chat model thinks, replies in a tag, and is rewarded for correct numbers.

    ludic serve Qwen/Qwen2.5-0.5B-Instruct --port 8000        # on one GPU
    python examples/gsm8k/train_gsm8k.py --model Qwen/Qwen2.5-0.5B-Instruct \
        --servers http://localhost:8000 --split train --device cuda:1 --updates 500
    python examples/gsm8k/train_gsm8k.py --offline            # the same code, on an untrained model

Offline, a tiny random model plays the bundled questions: everything runs, nothing is learned.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from pathlib import Path

import ludic_gym as lg
import ludic_train as lt

PROMPT = "Think inside <think></think>, then give just the number inside <answer></answer>."


def tasks(split: str | None, max_tokens: int) -> Iterator[lg.Task]:
    """Questions without end, in another order in every epoch."""
    kwargs = {} if split is None else {"split": split}
    sampling = lg.Sampling(max_tokens=max_tokens)
    return lg.dataset_tasks("ludic/GSM8K-v0", kwargs, shuffle_seed=0, sampling=sampling)


def opened(args: argparse.Namespace) -> lt.Learner:
    """The model, and the client that samples from it."""
    if args.offline:
        return lt.learner_from_nothing([], lg.Harness(reply_tokens=args.max_tokens), seed=0)
    return lt.learner_from_model(
        args.model, max_tokens=args.max_tokens, lora_rank=16, seed=0, servers=args.servers
    )


async def train(args: argparse.Namespace) -> None:
    """Make the updates, printing the mean reward of each, and save the model."""
    learner = opened(args)
    parser = lg.compose_parsers(lg.think_prefix_parser(), lg.xml_tag_parser("answer"))

    def make_policy(env: lg.Env) -> lg.Policy:
        chat = lg.ChatPolicy(learner.client, system_prompt=PROMPT)
        return lg.Parsed(lg.RejectCutOff(chat), parser)

    # An untrained model earns the same everywhere, and such groups would all be left out.
    algo = lt.grpo(filter=None) if args.offline else lt.grpo()
    source = lt.RolloutBatchSource(
        tasks(args.split, args.max_tokens),
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
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B-Instruct", help="folder or hub id")
    parser.add_argument("--servers", nargs="*", default=[], help="addresses of `ludic serve`")
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
