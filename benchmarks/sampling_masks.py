"""Bytes of the sampling masks of top_p, top_k and min_p, per sampled token, and the trainer's time.

    python benchmarks/sampling_masks.py [--model ludic-small]

Replies of a model to questions in words, in groups as a queue gets them; then masks of 50 tokens at
random of 151,936, which is as many bytes as top_k=50 can have with such a vocabulary. "update" is
the forward and backward pass of the rows, beside that of the same rows without masks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import nn

from ludic_gym.prompts import ExactPrompts
from ludic_gym.sampling_masks import packed_masks, unpacked_masks
from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.cluster.codec import RolloutGroup, group_to_bytes
from ludic_train.engine.batch import Request
from ludic_train.engine.engine import Engine
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.load import load_model
from ludic_train.rows import trajectory_from
from ludic_train.trainer.forward import forward
from ludic_train.trainer.microbatches import plan_update
from ludic_train.types import SAWItem

CUTS = {
    "none": Sampling(),
    "top_p 0.8": Sampling(top_p=0.8),
    "top_p 0.95": Sampling(top_p=0.95),
    "top_k 50": Sampling(top_k=50),
    "min_p 0.05": Sampling(min_p=0.05),
    "top_p 0.8, top_k 50": Sampling(top_p=0.8, top_k=50),
}
PROMPTS, TOKENS = 64, 48
VOCABULARY, LARGEST = 151_936, 50


def rollout(completion: Completion) -> Rollout:
    """One of a single turn."""
    step = Step(observation="", decision=Decision(action="", completions=(completion,)), reward=0.0)
    return Rollout(task=Task(env_id="", group="k"), steps=(step,))


def sampled(engine: Engine, prompts: ExactPrompts, sampling: Sampling) -> list[Completion]:
    """Replies to as many sums as there are PROMPTS."""
    ended = []
    for seed in range(PROMPTS):
        question = f"What is {seed} + {seed * 7 % 50}? Explain your answer."
        ids = tuple(prompts.token_ids([{"role": "user", "content": question}]))
        known = replace(sampling, seed=seed, max_tokens=TOKENS)
        engine.add(Request(prompt_ids=ids, sampling=known, policy_version=0))
    while not engine.is_idle:
        ended += [completion for _, completion in engine.advance()]
    return ended


def group_bytes(completions: Sequence[Completion], zstd_level: int | None) -> int:
    """Bytes of the group of all completions, as a queue gets it."""
    trajectories = tuple(trajectory_from(rollout(each)) for each in completions)
    return len(
        group_to_bytes(RolloutGroup(key="k", trajectories=trajectories), zstd_level=zstd_level)
    )


def update_s(model: nn.Module, items: Sequence[SAWItem]) -> float:
    """CPU-seconds of the forward and backward passes; the best of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        for micro_batch in plan_update(items, token_budget=4096)[0]:
            forward(model, micro_batch).logprobs.sum().backward()
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Bytes of sampling masks.")
    parser.add_argument("--model", default="ludic-small")
    model, tokenizer = load_model(parser.parse_args().model)
    engine = Engine(model, tokenizer, max_batch_size=PROMPTS)
    prompts = ExactPrompts(chat_renderer(tokenizer))
    table = Table("sampling", "ids per token", "row", "queue", "queue, zstd 1", "update")
    for name, sampling in CUTS.items():
        found = sampled(engine, prompts, sampling)
        tokens = sum(len(each.completion_ids or ()) for each in found)
        bare = [replace(each, sampling_mask=None, sampling=Sampling()) for each in found]
        masks = [each.sampling_mask or b"" for each in found]
        sizes = [
            unpacked_masks(mask, np.array(each.completion_ids))[0].sum()
            for mask, each in zip(masks, found, strict=True)
            if mask
        ]
        added = [
            (group_bytes(found, level) - group_bytes(bare, level)) / tokens for level in (None, 1)
        ]
        rows, plain = (
            [row for each in some for row in trajectory_from(rollout(each)).rows]
            for some in (found, bare)
        )
        table.add_row(
            name,
            f"{sum(sizes) / tokens:.1f}",
            f"{sum(map(len, masks)) / tokens:.1f}",
            *(f"{number:.1f}" for number in added),
            f"{update_s(model, rows) / update_s(model, plain):.2f}",
        )
    Console().print(table)
    rng = np.random.default_rng(0)
    chosen = [rng.choice(VOCABULARY, LARGEST, replace=False) for _ in range(1000)]
    size = len(packed_masks(chosen, [int(mask[0]) for mask in chosen]))
    print(f"{LARGEST} of {VOCABULARY} tokens: {size / 1000:.0f} bytes per token")


if __name__ == "__main__":
    main()
