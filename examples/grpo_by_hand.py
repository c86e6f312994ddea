"""GRPO in one file, for who wants to change it: a model learns to reply with an even digit.

    python examples/grpo_by_hand.py [--updates 20]

    play groups -> advantages -> rows of tokens -> log-probs -> loss -> step -> the sampler's params

`lt.train` does the same with much more around it. Left out here: several steps per batch, a KL
term, packing and sharing of prompts, a learning rate that rises and falls, checkpoints, evaluation,
and ranks. The loss is the library's; exchange it, the advantage, or the scale of a token below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count, islice
from typing import Any

import gymnasium as gym
import torch
import tyro
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

import ludic_gym as lg
import ludic_train as lt

ENV_ID = "example/AnEvenDigit-v0"
GROUPS, GROUP_SIZE, LR = 16, 16, 3e-3


class EvenDigitEnv(lg.TextEnv):
    """One question, one answer: reward 1 for an even digit, else 0."""

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        """Ask for a digit."""
        return "An even digit, please.", ""

    def turn(self, action: str) -> lg.Turn:
        """Reward an even one."""
        correct = action.strip() in set("02468")
        return lg.end(success=correct, reward=float(correct))


gym.register(ENV_ID, EvenDigitEnv)


async def play_groups(client: lg.ChatClient, tasks: Sequence[lg.Task]) -> list[list[lg.Rollout]]:
    """Rollouts of each task, GROUP_SIZE of them."""
    episodes = lg.run_episodes(
        lg.grouped(tasks, GROUP_SIZE),
        lg.Harness(cut_off="keep").make_policy(client),
        concurrency=256,
    )
    groups: dict[str, list[lg.Rollout]] = {}
    async for episode in episodes:
        if episode.error is not None:
            raise RuntimeError(f"an episode failed: {episode.error}")
        (rollout,) = episode.rollouts
        groups.setdefault(str(rollout.task.group), []).append(rollout)
    return list(groups.values())


def advantages(group: Sequence[lg.Rollout]) -> list[float]:
    """Rewards of the group, less their mean, over their standard deviation."""
    rewards = torch.tensor([rollout.total_reward for rollout in group])
    return ((rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-6)).tolist()


def rows(groups: Sequence[Sequence[lg.Rollout]]) -> tuple[Tensor, Tensor, lt.LossBatch]:
    """Ids of every model call, [B, T], which of them were sampled, and [N] facts about these."""
    scored = [each for group in groups for each in zip(group, advantages(group), strict=True)]
    prompts, facts, mask = [], [], []
    for number, (rollout, advantage) in enumerate(scored):
        calls = [call for step in rollout.steps for call in step.decision.completions]
        tokens = sum(len(call.completion_ids or ()) for call in calls)
        for call in calls:
            prompt, reply = list(call.prompt_ids or ()), list(call.completion_ids or ())
            prompts.append(torch.tensor(prompt + reply))
            mask.append(torch.tensor([False] * len(prompt) + [True] * len(reply)))
            # The mean over each rollout's tokens, then over rollouts. Dr. GRPO: a constant.
            scale = 1 / (tokens * len(scored))
            facts += [(advantage, scale, number, lp) for lp in call.logprobs or ()]
    weight, scales, rollout_of, sampled = map(torch.tensor, zip(*facts, strict=True))
    batch = lt.LossBatch(
        weight=weight,
        scale=scales,
        rollout=rollout_of,
        num_rollouts=len(scored),
        behavior_logprobs=sampled,
    )
    # Padding is on the right, where no token of a row sees it.
    return pad_sequence(prompts, batch_first=True), pad_sequence(mask, batch_first=True), batch


def logprobs(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> lt.TokenLogprobs:
    """Log-prob of each sampled token, and the entropy where it was sampled, [N] each."""
    # The logits at a token are about the next one.
    logp = model(ids).logits[:, :-1][mask[:, 1:]].float().log_softmax(-1)
    taken = logp.gather(-1, ids[:, 1:][mask[:, 1:]][:, None]).squeeze(-1)
    return lt.TokenLogprobs(logprobs=taken, entropy=-(logp.exp() * logp).sum(-1))


async def learn(updates: int) -> float:
    """The mean reward of the last batch."""
    tokenizer = lt.make_tokenizer(["An even digit, please."])
    model = lt.make_tiny_model(tokenizer)
    client = lt.LocalChatClient(model, tokenizer)
    publisher = lt.InProcessPublisher(client)
    loss = lt.CompositeLoss((lt.TokenClippedSurrogateLoss(0.2, 0.2), lt.EntropyBonus(0.01)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.0)
    questions = (
        lg.Task(env_id=ENV_ID, seed=i, sampling=lg.Sampling(max_tokens=1, seed=i)) for i in count()
    )
    reward = 0.0
    for update in range(1, updates + 1):
        groups = await play_groups(client, list(islice(questions, GROUPS)))
        total = [rollout.total_reward for group in groups for rollout in group]
        reward = sum(total) / len(total)
        # Equal rewards teach nothing.
        groups = [group for group in groups if len({r.total_reward for r in group}) > 1]
        if groups:
            ids, mask, batch = rows(groups)
            value, _ = loss(logprobs(model, ids, mask), batch)
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            # The client samples from the same tensors, and has to forget what it kept of them.
            await publisher.publish(model.named_parameters(), update)
        print(f"update {update:3d}  reward {reward:.3f}", flush=True)
    return reward


def main(updates: int = 20) -> None:
    """Learn, printing the mean reward of each batch."""
    asyncio.run(learn(updates))


if __name__ == "__main__":
    tyro.cli(main)
