"""Competition maths on several GPUs: FSDP2, bf16, a strict format, evaluations, checkpoints.

    ludic serve Qwen/Qwen2.5-7B-Instruct --port 8000          # on a GPU that does not train
    torchrun --nproc-per-node 4 examples/fsdp2_training/train_math_fsdp2.py \
        --model Qwen/Qwen2.5-7B-Instruct --servers http://localhost:8000 --device cuda \
        --split train --dtype bf16 --checkpoint-activations --updates 500 --out runs/math-7b
    python examples/fsdp2_training/train_math_fsdp2.py --offline
    torchrun --nproc-per-node 2 examples/fsdp2_training/train_math_fsdp2.py --offline

The first command with --resume continues from the last checkpoint. An offline run then ends with
the same params, bit for bit, as one that was never stopped; servers repeat no sample to the bit.
`ludic view runs/math-7b` makes a page of the curves and of some rollouts.

Rank 0 plays, plans and evaluates; the plan gives every rank its own micro-batches, equally many.
Offline, a tiny random model samples from a whole copy of itself, so all of it runs on a CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

import ludic_gym as lg
import ludic_train as lt
from ludic_train.runs.folder import episode_recorder

ENV_ID = "ludic/MATH-v0"
PROMPT = "Think inside <think></think>, then give the final answer as \\boxed{...}."


def opened(args: argparse.Namespace) -> lt.Learner:
    """The model to train, a client that samples from its newest params, and their publisher."""
    if args.offline:
        learner = lt.learner_from_nothing([], lg.Harness(reply_tokens=args.max_tokens), seed=0)
        twin = copy.deepcopy(learner.model)
        client = lt.LocalChatClient(twin, learner.tokenizer)
        return replace(learner, client=client, publisher=lt.CopyPublisher(client, twin))
    return lt.learner_from_model(
        args.model, max_tokens=args.max_tokens, lora_rank=0, seed=0, servers=args.servers or ()
    )


def prepared(model: torch.nn.Module, args: argparse.Namespace) -> torch.nn.Module:
    """The model spread over the ranks; one alone computes in the same way."""
    if args.checkpoint_activations:
        lt.checkpoint_activations(model)
    return lt.shard_model(
        model, device=args.device, param_dtype=torch.bfloat16 if args.dtype == "bf16" else None
    )


def tasks(args: argparse.Namespace) -> Iterator[lg.Task]:
    """Problems without end, in another order in every epoch."""
    kwargs = {} if args.split is None else {"split": args.split}
    sampling = lg.Sampling(max_tokens=args.max_tokens)
    return lg.dataset_tasks(ENV_ID, kwargs, shuffle_seed=0, sampling=sampling)


def held_out(args: argparse.Namespace) -> tuple[lg.Task, ...]:
    """Problems of the test split, the same in every evaluation."""
    sampling = lg.Sampling(temperature=args.eval_temperature, max_tokens=args.max_tokens)
    kwargs = {} if args.split is None else {"split": args.eval_split}
    return lg.bench_tasks(ENV_ID, kwargs=kwargs, episodes=args.eval_episodes, sampling=sampling)


def made_trainer(
    learner: lt.Learner, make_policy: lg.MakePolicy, args: argparse.Namespace
) -> lt.Trainer:
    """A trainer that learns from the policy's episodes by DAPO."""
    algo = lt.dapo(max_tokens=args.max_tokens, buffer=args.max_tokens // 4)
    if args.offline:
        # An untrained model earns the same everywhere, which teaches nothing within a group.
        algo = replace(algo, credit=lt.EpisodicReturn(), filter=None, full_batches=False)
    source = lt.RolloutBatchSource(
        tasks(args), make_policy, groups_per_batch=args.groups, group_size=args.group_size
    )
    cfg = lt.TrainerConfig(
        device=args.device,
        lr=args.lr,
        warmup_updates=10,
        max_seq_len=args.max_seq_len,
        micro_token_budget=args.micro_token_budget,
    )
    return lt.Trainer(prepared(learner.model, args), algo, source, learner.publisher, cfg)


def restore(manager: lt.CheckpointManager, trainer: lt.Trainer, args: argparse.Namespace) -> None:
    """Continue from the last checkpoint, or make sure that there is none to overwrite."""
    if args.resume:
        lt.resume_training(manager, trainer, "latest")
    elif manager.steps():
        raise lg.ConfigError(f"{args.out} has checkpoints: add --resume, or name another --out")


async def train(args: argparse.Namespace) -> None:
    """Make the updates; rank 0 plays, evaluates and logs, and all ranks save."""
    learner = opened(args)
    parser = lg.compose_parsers(lg.think_prefix_parser(), lg.boxed_parser())

    def make_policy(env: lg.Env) -> lg.Policy:
        chat = lg.ChatPolicy(learner.client, system_prompt=PROMPT)
        return lg.Parsed(lg.RejectCutOff(chat), parser)

    trainer = made_trainer(learner, make_policy, args)
    manager = lt.CheckpointManager(args.out / "checkpoints", keep_last=args.keep_last)
    restore(manager, trainer, args)
    logger = lt.rank_0_logger(lambda: lt.JSONLLogger(args.out / "metrics.jsonl"))

    def report(update: int, metrics: lt.Metrics) -> None:
        logger.log(update, lt.values(metrics))
        if lt.rank() == 0:
            print(f"update {update:3d}  reward {metrics['reward'].value:.3f}", flush=True)

    async def evaluate() -> None:
        if lt.rank() == 0:
            # Its first episodes go to rollouts.jsonl, which `ludic view` displays.
            record = episode_recorder(args.out, trainer.version)
            result = await lg.run_bench(held_out(args), make_policy, on_episode=record)
            logger.log(trainer.version, {"eval/success": result.success_rate})
            print(f"version {trainer.version}: {result.success_rate:.1%} solved", flush=True)

    def save() -> None:
        if args.shards:
            lt.save_shards(manager, trainer)
        else:
            write = partial(lt.save_model, learner.model, learner.tokenizer)
            lt.save_training(manager, trainer, write)

    await trainer.publish()
    if not args.resume:
        await evaluate()
    while trainer.version < args.updates:
        await trainer.train(min(args.eval_every, args.updates - trainer.version), report)
        await evaluate()
        save()
    logger.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct", help="folder or hub id")
    parser.add_argument("--servers", help="address of `ludic serve`")
    parser.add_argument("--offline", action="store_true", help="a tiny model made here")
    parser.add_argument("--split", help="train; left out, the bundled sample")
    parser.add_argument("--out", type=Path, default=Path("runs/math-fsdp2"))
    parser.add_argument("--resume", action="store_true", help="continue the run in --out")
    parser.add_argument("--shards", action="store_true", help="save without gathering the model")
    parser.add_argument("--keep-last", type=int, default=2, help="checkpoints that are kept")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--checkpoint-activations", action="store_true")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--eval-every", type=int, default=20, help="also of checkpoints")
    parser.add_argument("--eval-episodes", type=int, default=50)
    parser.add_argument("--eval-split", default="test", help="used together with --split")
    parser.add_argument("--eval-temperature", type=float, default=0.0)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=1024, help="of a completion")
    parser.add_argument("--max-seq-len", type=int, default=4096, help="longer rows are dropped")
    parser.add_argument("--micro-token-budget", type=int, default=16384, help="of a forward pass")
    parser.add_argument("--lr", type=float, default=1e-6)
    options = parser.parse_args()
    # Under torchrun, "cuda" is a card of its own for each rank.
    with lt.process_group(options.device) as options.device:
        asyncio.run(train(options))
