"""Tic-Tac-Toe by GRPO, played in this process or on a vLLM server while the params change.

    python examples/tic_tac_toe/train_tic_tac_toe.py                       # all in this process

With a server, on another GPU or on this CPU, in three commands:

    python examples/tic_tac_toe/train_tic_tac_toe.py --updates 0 --save runs/warm
    ludic serve runs/warm
    python examples/tic_tac_toe/train_tic_tac_toe.py --model runs/warm --servers http://localhost:8000

A model made from nothing first imitates random legal moves and so learns the form of a move. It
learns good moves by playing.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

import ludic_gym as lg
import ludic_train as lt

ENV, MAX_TOKENS, MINIBATCHES = "ludic/TicTacToe-v0", 4, 4
# Prompts of the model, here and in `ludic play`, `ludic bench` and `ludic train --model`.
SPEC = lg.Harness(context="latest", system_prompt="", reply_tokens=MAX_TOKENS)
Model = tuple[PreTrainedModel, PreTrainedTokenizerBase]


def tasks(first_seed: int = 0) -> Iterator[lg.Task]:
    """Games without end: half against random play, half against perfect play."""
    for seed in count(first_seed):
        opponent = "perfect" if seed % 2 else "random"
        sampling = lg.Sampling(max_tokens=MAX_TOKENS, seed=seed)
        yield lg.Task(env_id=ENV, kwargs={"opponent": opponent}, seed=seed, sampling=sampling)


async def warm_model(games: int, updates: int) -> Model:
    """A new model of 0.1M parameters that makes legal moves, mostly.

    Its heads have 32 dimensions, the fewest that vLLM computes on a CPU.
    """
    played: list[lg.Rollout] = []
    first = [task for task, _ in zip(tasks(1_000_000), range(games), strict=False)]
    async for episode in lg.run_episodes(first, lg.RandomPolicy):
        played += episode.rollouts
    played = [rollout for rollout in played if rollout.steps[-1].reward > -1]
    tokenizer = lt.make_tokenizer([s.observation for r in played for s in r.steps])
    model = lt.make_tiny_model(tokenizer, num_heads=2, num_kv_heads=1)
    written = [lt.with_token_ids(rollout, tokenizer, lg.LatestObservation()) for rollout in played]
    source = lt.OfflineBatchSource(written, batch_size=64)
    cfg = lt.TrainerConfig(lr=3e-3, warmup_updates=10)
    await lt.Trainer(model, lt.sft(), source, cfg=cfg).train(updates)
    return model, tokenizer


def client_and_publisher(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, server: str | None
) -> tuple[lg.ChatClient, lt.PolicyPublisher]:
    """The client that samples, and the publisher that brings params there."""
    if server is None:
        local = lt.LocalChatClient(model, tokenizer)
        return local, lt.InProcessPublisher(local)

    client = lt.token_client(server, tokenizer, seeds=False)
    return client, lt.FilesPublisher(server, clients=[client])


async def train(args: argparse.Namespace) -> None:
    """Warm up or load, learn, save; the reward of every batch is printed."""
    if args.model is None:
        model, tokenizer = await warm_model(args.games, args.imitate)
    else:
        folder, _ = lt.model_and_harness(args.model)
        model, tokenizer = lt.load_model(folder)
    client, publisher = client_and_publisher(model, tokenizer, args.servers)

    def make_policy(env: lg.Env) -> lg.ChatPolicy:
        return lg.ChatPolicy(client, lg.LatestObservation(), system_prompt="")

    algo = lt.grpo(entropy=0.02)
    source = lt.RolloutBatchSource(tasks(), make_policy, groups_per_batch=16, group_size=8)
    # A server gets the params once per batch; in this process they need no publication.
    every = 1 if args.servers is None else MINIBATCHES
    cfg = lt.TrainerConfig(lr=args.lr, minibatches=MINIBATCHES, publish_every=every)
    trainer = lt.Trainer(model, algo, source, publisher, cfg)

    rewards = []

    def report(update: int, metrics: lt.Metrics) -> None:
        # Only the first update of a batch has the rewards of its games.
        if "reward" in metrics:
            rewards.append(metrics["reward"].value)
        print(f"update {update:3d}  reward {rewards[-1]:+.3f}", flush=True)

    if args.updates:
        await trainer.train(args.updates, on_update=report)
    if isinstance(client, lg.VLLMTokenClient):
        await client.aclose()
    if args.save is not None:
        lt.save_model(model, tokenizer, args.save / "model")
        lg.write_harness(args.save, SPEC)
        print(f"saved {args.save}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--model", type=Path, help="folder that --save wrote")
    parser.add_argument("--servers", help="address of a vLLM server of that model")
    parser.add_argument("--save", type=Path, help="folder for the model and its prompts")
    parser.add_argument("--games", type=int, default=500, help="to imitate")
    parser.add_argument("--imitate", type=int, default=100, help="updates on them")
    asyncio.run(train(parser.parse_args()))
