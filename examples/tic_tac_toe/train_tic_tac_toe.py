"""Tic-Tac-Toe by GRPO, played in this process or on a vLLM server while the params change.

    python examples/tic_tac_toe/train_tic_tac_toe.py                       # all in this process

With a server, on another GPU or on this CPU, in three commands:

    python examples/tic_tac_toe/train_tic_tac_toe.py --updates 0 --save runs/warm
    ludic serve runs/warm
    python examples/tic_tac_toe/train_tic_tac_toe.py --model runs/warm --servers http://localhost:8000

A model that was made from nothing first imitates random legal moves, which teaches it what a move
looks like; what a good one is, it finds out by playing.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.policies.reference import RandomPolicy
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import ChatClient, Env, Rollout, Sampling, Task
from ludic_train.algorithms.presets import grpo, sft
from ludic_train.inference.client import LocalChatClient
from ludic_train.inference.policy_spec import PolicySpec, model_and_spec, write_policy_spec
from ludic_train.metrics import Metrics
from ludic_train.models.chat_template import chat_renderer, with_token_ids
from ludic_train.models.load import load_model, save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.publishers.base import InProcessPublisher, PolicyPublisher
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_train.rows import items_from
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.sources.rollouts import RolloutBatchSource
from ludic_train.trainer.trainer import Trainer, TrainerConfig

ENV, MAX_TOKENS, MINIBATCHES = "ludic/TicTacToe-v0", 4, 4
# How the model is asked, here and by `ludic play`, `ludic bench` and `ludic train --model`.
SPEC = PolicySpec(context="latest", system_prompt="", max_tokens=MAX_TOKENS)
Model = tuple[PreTrainedModel, PreTrainedTokenizerBase]


def tasks(first_seed: int = 0) -> Iterator[Task]:
    """Games for ever: half against chance, half against an opponent that never loses."""
    for seed in count(first_seed):
        opponent = "perfect" if seed % 2 else "random"
        sampling = Sampling(max_tokens=MAX_TOKENS, seed=seed)
        yield Task(env_id=ENV, kwargs={"opponent": opponent}, seed=seed, sampling=sampling)


async def warm_model(games: int, updates: int) -> Model:
    """A new model of 0.1M parameters that makes legal moves, mostly.

    Its heads have 32 dimensions, the fewest that vLLM computes on a CPU.
    """
    played: list[Rollout] = []
    shown = [task for task, _ in zip(tasks(1_000_000), range(games), strict=False)]
    async for episode in run_episodes(shown, RandomPolicy):
        played += episode.rollouts
    played = [rollout for rollout in played if rollout.steps[-1].reward > -1]
    tokenizer = make_tokenizer([s.observation for r in played for s in r.steps])
    model = make_tiny_model(tokenizer, num_heads=2, num_kv_heads=1)
    algo = sft()
    written = [with_token_ids(rollout, tokenizer, LatestObservation()) for rollout in played]
    source = OfflineBatchSource(items_from(written, algo.credit(written)), batch_size=64)
    client = LocalChatClient(model, tokenizer)
    cfg = TrainerConfig(lr=3e-3, warmup_updates=10)
    await Trainer(model, algo, source, InProcessPublisher(client), cfg).train(updates)
    return model, tokenizer


def client_and_publisher(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sampler: str | None
) -> tuple[ChatClient, PolicyPublisher]:
    """Who samples, and who brings the params there."""
    if sampler is None:
        local = LocalChatClient(model, tokenizer)
        return local, InProcessPublisher(local)

    client = VLLMTokenClient(sampler, chat_renderer(tokenizer), seeds=False)
    return client, VLLMPublisher(sampler, clients=[client])


async def train(args: argparse.Namespace) -> None:
    """Warm up or load, learn, save; the reward of every batch is printed."""
    if args.model is None:
        model, tokenizer = await warm_model(args.games, args.imitate)
    else:
        folder, _ = model_and_spec(args.model)
        model, tokenizer = load_model(folder)
    client, publisher = client_and_publisher(model, tokenizer, args.sampler)

    def make_policy(env: Env) -> ChatPolicy:
        return ChatPolicy(client, LatestObservation(), system_prompt="")

    algo = grpo(entropy=0.02)
    source = RolloutBatchSource(tasks(), make_policy, algo, groups_per_batch=16, group_size=8)
    # A server gets the params once per batch; in this process they need no publication.
    every = 1 if args.sampler is None else MINIBATCHES
    cfg = TrainerConfig(lr=args.lr, minibatches=MINIBATCHES, publish_every=every)
    trainer = Trainer(model, algo, source, publisher, cfg)

    rewards = []

    def report(update: int, metrics: Metrics) -> None:
        # Only the first update of a batch knows what its games earned.
        if "reward" in metrics:
            rewards.append(metrics["reward"].value)
        print(f"update {update:3d}  reward {rewards[-1]:+.3f}", flush=True)

    if args.updates:
        await trainer.train(args.updates, on_update=report)
    if isinstance(client, VLLMTokenClient):
        await client.aclose()
    if args.save is not None:
        save_model(model, tokenizer, args.save / "model")
        write_policy_spec(args.save, SPEC)
        print(f"saved {args.save}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--model", type=Path, help="folder that --save wrote")
    parser.add_argument("--servers", help="address of a vLLM server of that model")
    parser.add_argument("--save", type=Path, help="folder for the model and how it is asked")
    parser.add_argument("--games", type=int, default=500, help="to imitate")
    parser.add_argument("--imitate", type=int, default=100, help="updates on them")
    asyncio.run(train(parser.parse_args()))
