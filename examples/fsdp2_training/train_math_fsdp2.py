"""Competition maths on several GPUs: FSDP2, bf16, a strict format, evaluation on the way.

    ludic serve Qwen/Qwen2.5-7B-Instruct --port 8000          # on a GPU that does not train
    torchrun --nproc-per-node 4 examples/fsdp2_training/train_math_fsdp2.py \
        --model Qwen/Qwen2.5-7B-Instruct --servers http://localhost:8000 --device cuda \
        --split train --dtype bf16 --checkpoint-activations --updates 500
    python examples/fsdp2_training/train_math_fsdp2.py --offline
    torchrun --nproc-per-node 2 examples/fsdp2_training/train_math_fsdp2.py --offline

Rank 0 plays, plans and evaluates; the plan gives every rank its own micro-batches, equally many.
Offline, a tiny random model samples from a whole copy of itself, so all of it runs on a CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import gymnasium as gym
import torch

import ludic_gym as lg
import ludic_train as lt

ENV_ID = "ludic/MATH-v0"
PROMPT = "Think inside <think></think>, then give the final answer as \\boxed{...}."


def opened(args: argparse.Namespace) -> tuple[torch.nn.Module, lg.ChatClient, lt.PolicyPublisher]:
    """The model to train, a client that samples from its newest params, and their publisher."""
    if args.offline:
        learner = lt.learner_from_nothing([], lt.PolicySpec(max_tokens=args.max_tokens), seed=0)
        twin = copy.deepcopy(learner.model)
        client = lt.LocalChatClient(twin, learner.tokenizer)
        return learner.model, client, lt.CopyPublisher(client, twin)
    learner = lt.learner_from_model(
        args.model, max_tokens=args.max_tokens, lora_rank=0, seed=0, servers=args.servers or ()
    )
    return learner.model, learner.client, learner.publisher


def prepared(model: torch.nn.Module, args: argparse.Namespace) -> torch.nn.Module:
    """The model spread over the ranks; one alone computes in the same way."""
    if args.checkpoint_activations:
        lt.checkpoint_activations(model)
    return lt.shard_model(
        model, device=args.device, param_dtype=torch.bfloat16 if args.dtype == "bf16" else None
    )


def tasks(split: str | None, max_tokens: int) -> Iterator[lg.Task]:
    """Problems without end, each row as often as any other; one attempt at each."""
    kwargs = {} if split is None else {"split": split}
    rows = gym.make(ENV_ID, **kwargs).unwrapped.num_rows
    for i in count():
        sampling, options = lg.Sampling(max_tokens=max_tokens, seed=i), {"row": i % rows}
        yield lg.Task(
            env_id=ENV_ID, kwargs=kwargs, seed=i, options=options, sampling=sampling, max_turns=1
        )


async def train(args: argparse.Namespace) -> None:
    """Make the updates; rank 0 prints the reward of each, and how the test split goes."""
    model, client, publisher = opened(args)
    parser = lg.compose_parsers(lg.think_prefix_parser(), lg.boxed_parser())

    def make_policy(env: lg.Env) -> lg.Policy:
        return lg.Parsed(lg.RejectCutOff(lg.ChatPolicy(client, system_prompt=PROMPT)), parser)

    algo = lt.dapo(max_tokens=args.max_tokens, buffer=args.max_tokens // 4)
    if args.offline:
        # An untrained model earns the same everywhere, and such groups would all be left out.
        algo = replace(algo, filter=None, full_batches=False)
    source = lt.RolloutBatchSource(
        tasks(args.split, args.max_tokens),
        make_policy,
        groups_per_batch=args.groups,
        group_size=args.group_size,
    )
    cfg = lt.TrainerConfig(device=args.device, lr=args.lr, warmup_updates=10)
    trainer = lt.Trainer(prepared(model, args), algo, source, publisher, cfg)

    def report(update: int, metrics: lt.Metrics) -> None:
        if lt.rank() == 0:
            print(f"update {update:3d}  reward {metrics['reward'].value:.3f}", flush=True)

    async def evaluate() -> None:
        if lt.rank() == 0:
            kwargs = {} if args.split is None else {"split": "test"}
            sampling = lg.Sampling(temperature=0.0, max_tokens=args.max_tokens)
            held_out = lg.bench_tasks(
                ENV_ID, kwargs=kwargs, episodes=args.eval_episodes, sampling=sampling, max_turns=1
            )
            result = await lg.run_bench(held_out, make_policy)
            print(f"version {trainer.version}: {result.success_rate:.1%} solved", flush=True)

    await trainer.publish()
    await evaluate()
    while trainer.version < args.updates:
        await trainer.train(min(args.eval_every, args.updates - trainer.version), report)
        await evaluate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct", help="folder or hub id")
    parser.add_argument("--servers", help="address of `ludic serve`")
    parser.add_argument("--offline", action="store_true", help="a tiny model made here")
    parser.add_argument("--split", help="train; left out, the bundled sample")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--checkpoint-activations", action="store_true")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--eval-every", type=int, default=20)
    parser.add_argument("--eval-episodes", type=int, default=50)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=1e-6)
    options = parser.parse_args()
    # Under torchrun, "cuda" is a card of its own for each rank.
    with lt.process_group(options.device) as options.device:
        asyncio.run(train(options))
