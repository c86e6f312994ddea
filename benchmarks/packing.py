"""Updates of a chat model with shared prompts, with packed rows and with padded ones.

    python benchmarks/packing.py [--model ludic-small] [--envs ludic/Countdown-v0 ...] [--rounds 5]

The same rows each time: its own episodes, rows with a long tail, and groups of 8 short replies to a
prompt. Seconds are those of the processor, medians of rounds that alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import ludic_gym as lg
import ludic_train as lt
from ludic_train.inference.client import policy_from_run
from ludic_train.models.cache import resolved
from ludic_train.models.load import load_model
from ludic_train.rows import rows_from
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.config import Execution, TrainerConfig
from ludic_train.types import SAWItem

GROUP = 8
# The last is the default.
EXECUTIONS = {
    "padded": Execution(packing=False),
    "packed": Execution(share_prompts=False),
    "shared": Execution(),
}
ENVS = ["ludic/Countdown-v0", "ludic/ShortAnswer-v0", "ludic/GuessTheNumber-v0", "ludic/Hangman-v0"]


async def played_rows(model: str, env_id: str, episodes: int, max_tokens: int) -> list[SAWItem]:
    """Rows of the model's own episodes, with their returns as weights."""
    sampling = lg.Sampling(max_tokens=max_tokens)
    tasks = lg.bench_tasks(env_id, episodes=episodes // GROUP, samples=GROUP, sampling=sampling)
    played = [ep async for ep in lg.run_episodes(tasks, policy_from_run(model))]
    return rows_from([r for ep in played for r in ep.rollouts], lt.reinforce(filter=None))


def rows_with_a_long_tail(vocabulary: int) -> list[SAWItem]:
    """Rows of random tokens, whose lengths are as uneven as those of long reasoning."""
    rng = np.random.default_rng(0)
    return [
        SAWItem(
            input_ids=rng.integers(3, vocabulary, length).astype(np.int32),
            action_mask=np.arange(length) >= length // 2,
            weight=np.where(np.arange(length) >= length // 2, 1.0, 0.0).astype(np.float32),
        )
        for length in np.clip(rng.lognormal(4.2, 1.0, 64), 20, 1000).astype(int)
    ]


def rows_of_groups(vocabulary: int) -> list[SAWItem]:
    """Eight rows for each of eight prompts: 28 tokens of the prompt and 10 of the reply."""
    rng = np.random.default_rng(0)
    mask = np.arange(38) >= 28
    prompts = [rng.integers(3, vocabulary, 28) for _ in range(8)]
    return [
        SAWItem(
            input_ids=np.append(prompt, rng.integers(3, vocabulary, 10)).astype(np.int32),
            action_mask=mask,
            weight=mask.astype(np.float32),
        )
        for prompt in prompts
        for _ in range(GROUP)
    ]


def seconds_of(trainer: lt.Trainer, rows: Sequence[SAWItem]) -> float:
    started = time.process_time()
    trainer.update(rows)
    return time.process_time() - started


def trainer_of(model: nn.Module, rows: Sequence[SAWItem], execution: Execution) -> lt.Trainer:
    cfg = TrainerConfig(execution=execution)
    source = OfflineBatchSource(rows, batch_size=len(rows))
    return lt.Trainer(model, lt.reinforce(filter=None), source, cfg=cfg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ludic-small")
    parser.add_argument("--envs", nargs="+", default=ENVS)
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, _ = load_model(resolved(args.model))
    ratios = "padded / packed", "packed / shared"
    table = Table("envs", "rows", "tokens of a row", *(f"{n}, s" for n in EXECUTIONS), *ratios)
    played = {
        env_id: asyncio.run(played_rows(args.model, env_id, args.episodes, args.max_tokens))
        for env_id in args.envs
    }
    every = [row for rows in played.values() for row in rows]
    vocabulary = model.config.vocab_size
    made = {"(a long tail)": rows_with_a_long_tail(vocabulary)}
    made |= {"(28 shared, 10 own)": rows_of_groups(vocabulary)}
    for name, rows in {**played, "all of them": every, **made}.items():
        trainers = [trainer_of(copy.deepcopy(model), rows, each) for each in EXECUTIONS.values()]
        rounds = [[seconds_of(trainer, rows) for trainer in trainers] for _ in range(args.rounds)]
        padded, packed, shared = map(statistics.median, zip(*rounds, strict=True))
        lengths = sorted(len(row.input_ids) for row in rows)
        seconds = [f"{each:.2f}" for each in (padded, packed, shared)]
        table.add_row(
            name,
            str(len(rows)),
            f"{lengths[0]} to {lengths[-1]}, median {statistics.median(lengths):.0f}",
            *seconds,
            f"{padded / packed:.2f}",
            f"{packed / shared:.2f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
