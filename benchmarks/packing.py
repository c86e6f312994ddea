"""Updates of a chat model with shared prompts, with packed rows and with padded ones.

    python benchmarks/packing.py [--model ludic-small] [--envs ludic/Countdown-v0 ...] [--rounds 5]
    python benchmarks/packing.py --shape 135M --rounds 1 [--rows 64] [--layers 1]

The same rows each time: the model's own episodes, rows with a long tail, and groups of 8 short
replies to a prompt. Seconds are those of the processor, medians of rounds that alternate.

A shape has random params, and only the made rows. Beside Ludic's trainer are loops by hand that pad
their micro-batches: 8 rows in the order in which they came, which is the usual one; rows by length,
as many as 4,096 tokens allow; 4 rows by length. Params do not move, and the gradients of Ludic's
ways are compared with that of the first. An update of 135M params takes minutes: `--layers` takes
fewer layers and a vocabulary of 512, so that products and attention of the layers are what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from harness.rates import budget, kept_line, rate_of, save
from harness.shapes import SHAPES, random_model
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from trainer import sorted_chunks, update_from

import ludic_gym as lg
import ludic_train as lt
from ludic_train.engine.client import policy_from_run
from ludic_train.models.cache import resolved
from ludic_train.models.load import load_model
from ludic_train.rows import rows_from
from ludic_train.trainer.config import Execution, Guards, TrainerConfig
from ludic_train.types import SAWItem

GROUP = 8
# A learning rate by which params stay as they are, so that every gradient is of the same ones.
STILL = 1e-30
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


def row_of(ids: np.ndarray, sampled_from: int) -> SAWItem:
    """A row whose tokens are sampled from a position on, with weight 1."""
    mask = np.arange(len(ids)) >= sampled_from
    return SAWItem(
        input_ids=ids.astype(np.int32),
        action_mask=mask,
        weight=mask.astype(np.float32),
        behavior_logprobs=np.where(mask, -10.8, 0).astype(np.float32),
    )


def rows_with_a_long_tail(vocabulary: int, count: int = 64) -> list[SAWItem]:
    """Rows of random tokens, whose lengths are as uneven as those of long reasoning."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(4.2, 1.0, budget(count, 4)), 20, 1000).astype(int)
    return [row_of(rng.integers(3, vocabulary, n), n // 2) for n in lengths]


def rows_of_groups(vocabulary: int) -> list[SAWItem]:
    """Eight rows for each of eight prompts: 28 tokens of the prompt and 10 of the reply."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, vocabulary, 28) for _ in range(budget(8, 1))]
    return [
        row_of(np.append(prompt, rng.integers(3, vocabulary, 10)), 28)
        for prompt in prompts
        for _ in range(GROUP)
    ]


def seconds_of(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def trainer_of(model: nn.Module, execution: Execution, lr: float = 1e-5) -> lt.Trainer:
    guards = Guards(max_kl_at_lag_0=None)
    cfg = TrainerConfig(execution=execution, guards=guards, lr=lr)
    return lt.Trainer(model, lt.reinforce(filter=None), None, cfg=cfg)


def in_order(rows: list[SAWItem]) -> list[list[SAWItem]]:
    """Eight rows a micro-batch, as they came."""
    return [rows[at : at + 8] for at in range(0, len(rows), 8)]


def few_sorted(rows: list[SAWItem]) -> list[list[SAWItem]]:
    """Four rows of similar length a micro-batch."""
    by_length = sorted(rows, key=lambda row: len(row.input_ids))
    return [by_length[at : at + 4] for at in range(0, len(rows), 4)]


# Loops by hand, by their names in the table.
BY_HAND: Mapping[str, Callable[[list[SAWItem]], list[list[SAWItem]]]] = {
    "by hand: padded, 8 rows in order": in_order,
    "by hand: padded, sorted, 4,096 tokens": sorted_chunks,
    "by hand: padded, sorted, 4 rows": few_sorted,
}


def seconds_by_hand(shape: str, rows: list[SAWItem], chunks: list[list[SAWItem]]) -> float:
    """Seconds of an update by hand, after one of few rows."""
    model = random_model(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=STILL, fused=True)
    update_from(model, optimizer, [rows[:2]])
    return seconds_of(lambda: update_from(model, optimizer, chunks))


def seconds_of_trainer(
    shape: str, rows: list[SAWItem], execution: Execution
) -> tuple[float, Tensor]:
    """Seconds of an update by Ludic's trainer, after one of few rows; and its gradient."""
    trainer = trainer_of(random_model(shape), execution, STILL)
    # The probes of the model are in it.
    trainer.update(rows[:2])
    seconds = seconds_of(lambda: trainer.update(rows))
    gradients = [p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]
    return seconds, torch.cat(gradients)


def measured_shape(
    shape: str, rows: list[SAWItem], ways: Sequence[str], rounds: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each way in each round, and how far gradients are from that of the first."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    away: dict[str, float] = {}
    first = torch.empty(0)
    for _ in range(rounds):
        for way, spent in seconds.items():
            if way in BY_HAND:
                spent.append(seconds_by_hand(shape, rows, BY_HAND[way](rows)))
            else:
                took, gradient = seconds_of_trainer(shape, rows, EXECUTIONS[way])
                spent.append(took)
                first = first if away else gradient
                away[way] = float((gradient - first).norm() / first.norm())
            print(f"{len(rows)} rows, {way}: {spent[-1]:.1f} s", flush=True)
    return seconds, away


def few_layers(shape: str, layers: int) -> str:
    """Name in SHAPES of so many layers of the shape, with a small vocabulary."""
    config = copy.deepcopy(SHAPES[shape])
    config.num_hidden_layers, config.vocab_size = layers, 512
    name = f"{shape}, layers {layers}"
    SHAPES[name] = config
    return name


def compare_shape(shape: str, rounds: int, count: int) -> None:
    """Print and keep what updates of random rows take in a shape."""
    table = Table("rows", "update", "CPU s", "of ours", "gradient away by")
    vocabulary, kept = SHAPES[shape].vocab_size, list[object]()
    for name, rows, ways, goal in (
        (
            "a long tail",
            rows_with_a_long_tail(vocabulary, count),
            ["packed", "padded", *BY_HAND],
            2.0,
        ),
        ("28 shared, 10 own", rows_of_groups(vocabulary), ["packed", "shared"], 1.8),
    ):
        seconds, away = measured_shape(shape, rows, ways, rounds)
        # The default, which shares no prompts where all differ.
        ours = "packed" if "padded" in away else "shared"
        tokens, median = sum(len(row.input_ids) for row in rows), statistics.median
        for way, spent in seconds.items():
            ratio = median(spent) / median(seconds[ours])
            far = f"{away[way]:.1e}" if way in away else ""
            table.add_row(name, way, f"{median(spent):.1f}", f"{ratio:.2f}", far)
        rates = {way: rate_of(tokens, spent) for way, spent in seconds.items() if way != ours}
        rates = {"ours": rate_of(tokens, seconds[ours]), **rates}
        lengths = sorted(len(row.input_ids) for row in rows)
        what = f"update, {shape}: {len(rows)} rows of {lengths[0]} to {lengths[-1]}, {name}"
        kept.append(kept_line(what, rates, goal_ratio=goal))
    Console(width=120).print(table)
    save("packing", kept)


def compare_episodes(args: argparse.Namespace) -> None:
    """Print what updates of a model's own episodes take, and of made rows."""
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
        trainers = [trainer_of(copy.deepcopy(model), each) for each in EXECUTIONS.values()]
        rounds = [
            [seconds_of(partial(trainer.update, rows)) for trainer in trainers]
            for _ in range(args.rounds)
        ]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ludic-small")
    parser.add_argument("--shape", choices=SHAPES, help="random params in this shape instead")
    parser.add_argument("--layers", type=int, help="layers of the shape alone, so many of them")
    parser.add_argument("--rows", type=int, default=64, help="of the long tail of a shape")
    parser.add_argument("--envs", nargs="+", default=ENVS)
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.shape:
        shape = few_layers(args.shape, args.layers) if args.layers else args.shape
        compare_shape(shape, args.rounds, args.rows)
    else:
        compare_episodes(args)


if __name__ == "__main__":
    main()
