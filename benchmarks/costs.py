"""Costs that must not grow, as ratios of two works that run in turns, and exponents of growth.

    python benchmarks/costs.py

An exponent is the slope of the logarithm of the CPU-seconds over that of the size: 1 is linear, 0
flat. `benchmarks/growth.py` has those over the turns of an episode.
"""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch
from queue_rows import group
from rates import budget, save
from rollouts import GAMES, client_of, play
from sampler import endless
from startup import children_seconds, start
from trainer import rows, sampled_tail

from ludic_gym.bench.folder import open_transcripts
from ludic_gym.bench.runner import bench_tasks, run_bench
from ludic_gym.policies.reference import RandomPolicy
from ludic_gym.types import Sampling
from ludic_train.algorithms.presets import grpo
from ludic_train.cluster.codec import group_to_bytes
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.engine.batch import Engine, Request
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.config import Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer

# Does a work once; its CPU-seconds.
Once = Callable[[], float]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A figure, and the most that it may be."""

    what: str
    figure: float
    most: float


def seconds_of(work: Callable[[], object]) -> float:
    """CPU-seconds of this process for the work."""
    started = time.process_time()
    work()
    return time.process_time() - started


def ratio(work: Once, other: Once, *, rounds: int = 5) -> float:
    """The cost of a work over that of another one: the median of rounds in which both run."""
    work(), other()
    return median(work() / other() for _ in range(budget(rounds, 1)))


def exponent(work: Callable[[int], float], small: int, large: int) -> float:
    """Exponent of the growth of a cost between two sizes."""
    return math.log(ratio(partial(work, large), partial(work, small))) / math.log(large / small)


def playing(env_id: str, concurrency: int) -> Once:
    """Episodes with a model that costs nothing, so many in flight."""
    client, amount = client_of(env_id), budget(4096, 64)

    def work() -> None:
        seeds = iter(range(amount))
        asyncio.run(play(env_id, client, seeds, amount=amount, concurrency=concurrency))

    return partial(seconds_of, work)


def reading(engine: Engine, prompts: int, seed: int = 0) -> float:
    """A token after each of some prompts of 400 tokens of which 390 are shared."""
    rng = random.Random(seed)
    shared = rng.choices(range(engine.vocab_size), k=390)
    for number in range(prompts):
        ids = (*shared, *rng.choices(range(engine.vocab_size), k=10))
        engine.add(Request(prompt_ids=ids, sampling=Sampling(seed=number, max_tokens=1)))
    engine.prefixes.clear()
    return seconds_of(engine.advance)


def updating(trainer: Trainer, different: int, copies: int) -> float:
    """An update of so many different rows, each so often."""
    made = rows([sampled_tail(24)] * different)
    items = [replace(row, rollout=f"{n}-{i}") for n in range(copies) for i, row in enumerate(made)]
    return seconds_of(lambda: trainer.update(items))


async def pushing(folder: Path, depth: int) -> float:
    """Pushes of 6 kB to a queue in a file that holds so many groups."""
    data, pushes = group_to_bytes(group("k", 226)), 100
    queue = SQLiteQueue(folder / f"{depth}.queue", max_queued=depth + 100 * pushes)
    for number in range(depth - (await queue.status()).queued):
        await queue.push(f"{number}", data)
    started = time.process_time()
    for number in range(pushes):
        await queue.push(f"{time.process_time_ns()}-{number}", data)
    seconds = time.process_time() - started
    await queue.aclose()
    return seconds


def benching(folder: Path, episodes: int, *, keeps: bool) -> float:
    """Random games of a benchmark; with each written to the disk where it keeps them."""
    tasks = bench_tasks("ludic/TicTacToe-v0", kwargs={}, episodes=episodes, seed=0)

    def work() -> None:
        if not keeps:
            asyncio.run(run_bench(tasks, RandomPolicy, keep=False))
            return
        with open_transcripts(folder / "games.jsonl", policy="random") as append:
            asyncio.run(run_bench(tasks, RandomPolicy, keep=False, on_episode=append))

    return seconds_of(work)


def importing(program: str) -> float:
    """A new process."""
    return children_seconds(partial(start, ("-c", program)))


def costs(folder: Path) -> Iterator[Cost]:
    """All costs, each as it is measured."""
    for name, env_id, _ in GAMES:
        figure = ratio(playing(env_id, 1024), playing(env_id, 64))
        yield Cost(what=f"{name}: a rollout, 1,024 in flight / 64", figure=figure, most=1 / 0.9)
    model, tokenizer = endless("10M")
    engine = Engine(model, tokenizer, max_batch_size=8, prefix_cache_bytes=2**29)
    figure = ratio(partial(reading, engine, 8), partial(reading, engine, 1))
    yield Cost(what="8 prompts that share 390 of 400 tokens / 1", figure=figure, most=1.4)
    trainer = Trainer(
        make_tiny_model(make_tokenizer(["a b c"])),
        *(grpo(), None),
        cfg=TrainerConfig(guards=Guards(max_kl_at_lag_0=None)),
    )
    figure = ratio(partial(updating, trainer, 64, 8), partial(updating, trainer, 64, 1))
    yield Cost(what="update: 64 rows, each 8 times / once", figure=figure, most=2.0)
    growth = exponent(lambda count: updating(trainer, count, 1), 64, budget(1024, 128))
    yield Cost(what="update: exponent over rows", figure=growth, most=1.1)
    many = budget(10_000, 200)
    figure = ratio(*(lambda d=d: asyncio.run(pushing(folder, d)) for d in (many, 100)))
    yield Cost(what=f"SQLite: push at a depth of {many:,} / 100", figure=figure, most=1.3)
    played = budget(1_000, 20)
    keep, drop = (partial(benching, folder, played, keeps=keeps) for keeps in (True, False))
    yield Cost(what="benchmark: an episode, kept / not", figure=ratio(keep, drop), most=1.5)
    growth = exponent(partial(benching, folder, keeps=True), played, 4 * played)
    yield Cost(what="benchmark: exponent over episodes", figure=growth, most=1.1)
    made, bare = (
        partial(importing, f"import {p}") for p in ("ludic_train as lt; lt.grpo()", "torch")
    )
    yield Cost(what="lt.grpo() / import torch", figure=ratio(made, bare, rounds=3), most=1.2)


def main() -> None:
    """Print and keep the figures."""
    torch.set_num_threads(1)
    kept = []
    print(f"{'cost / that beside it':52}{'figure':>8}{'at most':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for cost in costs(Path(folder)):
            print(f"{cost.what:52}{cost.figure:8.2f}{cost.most:9.2f}", flush=True)
            kept.append(asdict(cost))
    save("costs", kept)


if __name__ == "__main__":
    main()
