"""Trained tokens and played games per second, beside a bare torch loop that does the same.

    python benchmarks/training.py [--threads 1] [--repeats 5]

The bare loop is what one writes in a notebook: padded rows, the model's logits, log_softmax,
gather, backward, clip, AdamW. Every number is the best of `repeats`; compare ratios, not absolutes.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from itertools import count

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.types import Sampling, Task
from ludic_train.algorithms import make_grpo, make_reinforce
from ludic_train.inference.saved import PolicySpec
from ludic_train.model import make_tiny_model, make_tokenizer
from ludic_train.recipes.learner import Learner, learner_from_nothing
from ludic_train.saw import SAWItem
from ludic_train.sources import RolloutBatchSource
from ludic_train.trainer import Trainer, TrainerConfig

LENGTHS = {
    "256 rows of 22 tokens": [22] * 256,
    "64 rows of 8 to 256 tokens": [8 + 248 * i * i // 63**2 for i in range(64)],
}


def rows(lengths: list[int]) -> list[SAWItem]:
    """Random rows whose last third was sampled."""
    rng = np.random.default_rng(0)
    made = []
    for length in lengths:
        mask = np.arange(length) >= length - max(length // 3, 1)
        weight = np.where(mask, rng.normal(), 0).astype(np.float32)
        made.append(
            SAWItem(
                input_ids=rng.integers(3, 250, length).astype(np.int32),
                action_mask=mask,
                weight=weight,
                behavior_logprobs=np.where(mask, -5.5, 0).astype(np.float32),
            )
        )
    return made


def bare_update(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, items: list[SAWItem]
) -> None:
    """The same clipped surrogate on one padded batch."""
    width = max(len(item.input_ids) for item in items)

    def padded(arrays: list[np.ndarray]) -> torch.Tensor:
        return torch.stack(
            [torch.from_numpy(np.pad(array, (0, width - len(array)))) for array in arrays]
        )

    ids = padded([item.input_ids.astype(np.int64) for item in items])
    real = padded([np.ones(len(item.input_ids), np.int64) for item in items])
    mask = padded([item.action_mask for item in items])[:, 1:]
    weight = padded([item.weight for item in items])[:, 1:]
    old = padded([item.behavior_logprobs for item in items])[:, 1:]
    logits = model(input_ids=ids, attention_mask=real).logits[:, :-1]
    logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    ratio = (logprobs - old).exp()
    surrogate = torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight)
    loss = -(surrogate * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def best_rate(work: Callable[[], None], amount: int, repeats: int) -> float:
    """`amount` per second, in the fastest of `repeats` calls."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return amount / min(seconds)


def trained_rates(lengths: list[int], repeats: int) -> tuple[float, float]:
    """Tokens per second of Ludic's trainer and of the bare loop."""
    items, tokenizer = rows(lengths), make_tokenizer(["a b c"])
    model = make_tiny_model(tokenizer)
    algo = make_grpo()
    trainer = Trainer(model, algo, None, cfg=TrainerConfig(micro_token_budget=4096))
    bare = make_tiny_model(tokenizer)
    optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-5, fused=True)
    return (
        best_rate(lambda: trainer.update(items), sum(lengths), repeats),
        best_rate(lambda: bare_update(bare, optimizer, items), sum(lengths), repeats),
    )


def games_rate(repeats: int) -> float:
    """Tic-Tac-Toe games per second, sampled from the tiny model and made into rows."""
    sampling = Sampling(max_tokens=8)
    tasks = (
        Task(env_id="ludic/TicTacToe-v0", seed=i, sampling=sampling, max_turns=5) for i in count()
    )
    learner: Learner = learner_from_nothing([], PolicySpec(context="latest"), seed=0)
    source = RolloutBatchSource(
        tasks, learner.make_policy, make_reinforce(), groups_per_batch=32, group_size=8
    )

    async def play() -> None:
        await source.next_batch()

    return best_rate(lambda: asyncio.run(play()), 256, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    table = Table("trained tokens/s", "Ludic", "bare loop", "ratio")
    for name, lengths in LENGTHS.items():
        ours, bare = trained_rates(lengths, args.repeats)
        table.add_row(name, f"{ours:,.0f}", f"{bare:,.0f}", f"{ours / bare:.2f}")
    console = Console()
    console.print(table)
    console.print(f"games of an untrained policy: {games_rate(args.repeats):,.0f}/s")


if __name__ == "__main__":
    main()
