"""Rows per second through the queue, beside a list of pickles in the same Redis.

    python benchmarks/queue_rows.py [--repeats 3] [--megabytes 20]

An item is a row of about 6, 44 or 152 kB as a pickle of lists of numbers: 226, 1,680 or 5,815
tokens. Eight rows make a group.

    queue    RedisQueue.push, and RedisQueue.read with settle, in batches of 64 groups, decoded
    pickles  RPUSH of a pickled row, and BLPOP of one at a time, with pickle.loads

Before that, the server's CPU time per admission, with 10, 100 and 1,000 actors that all play and
want more. Rates are of CPU seconds, of this process and of the server together, so that the load of
other programs does not count. Compare ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from rates import budget, kept_line, rate_of, save
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from ludic_train.cluster.codec import RolloutGroup, group_from_bytes, group_to_bytes
from ludic_train.cluster.queues.base import ActorReport, Progress, Trained, TrainerReport
from ludic_train.cluster.queues.redis_queue import RedisQueue
from ludic_train.types import SAWItem, Trajectory

# Tokens of a row.
LENGTHS = {"6 kB": 226, "44 kB": 1_680, "152 kB": 5_815}
ROWS, BATCH = 8, 64
ACTORS, ADMISSIONS = (10, 100, 1_000), 2_000


@contextmanager
def redis_server() -> Iterator[str]:
    """The URL of a Redis on a free port, which ends with the block and keeps nothing.

    Raises SystemExit where none is installed.
    """
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("install redis-server or valkey-server first")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--dir", folder, "--save", ""]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(1)
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait()


def group(key: str, length: int) -> RolloutGroup:
    """A group with every stream that an actor sends; two thirds of its tokens were sampled."""
    rng = np.random.default_rng(0)
    mask = np.arange(length) >= length // 3
    row = SAWItem(
        input_ids=rng.integers(0, 150_000, length).astype(np.int32),
        action_mask=mask,
        weight=np.zeros(length, np.float32),
        behavior_logprobs=np.where(mask, -rng.random(length), 0).astype(np.float32),
        versions=np.where(mask, 3, -1).astype(np.int32),
        steps=np.where(mask, 0, -1).astype(np.int32),
        group=key,
    )
    trajectory = Trajectory(
        rows=(row,),
        rewards=np.array([0.7]),
        parsed=np.array([True]),
        completions=np.array([(0, int(mask.sum()), 0)], np.int32),
        env_id="ludic/Example-v0",
        group=key,
        info={"success": True},
    )
    return RolloutGroup(key=key, trajectories=(trajectory,) * ROWS)


async def server_s(redis: Redis) -> float:
    """CPU time of the server so far."""
    used = await redis.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


async def cpu_s(redis: Redis, work: Awaitable[object]) -> float:
    """CPU time of the work, of this process and of the server."""
    before = time.process_time() + await server_s(redis)
    await work
    return time.process_time() + await server_s(redis) - before


async def through_queue(redis: Redis, url: str, groups: list[RolloutGroup]) -> tuple[float, float]:
    """CPU seconds of encoding and pushing all groups, and of reading and decoding them."""
    # As in a run, a queue that is far from full: near it, each push looks for room.
    queue = RedisQueue(url, "benchmark", max_queued=2 * len(groups))
    trainer = TrainerReport(version=0, groups_per_batch=BATCH, group_size=ROWS)
    await queue.take_over(trainer, kept="", total=0)

    async def push() -> None:
        for each in groups:
            await queue.push(each.key, group_to_bytes(each))

    async def pop() -> None:
        done = 0
        while done < len(groups):
            entries = await queue.read(BATCH)
            for entry in entries:
                group_from_bytes(entry.data)
            done += len(entries)
            trained = [Trained(id=entry.id, key=entry.key, lag=0) for entry in entries]
            release = [entry.id for entry in entries]
            progress = Progress(trainer=trainer, trained=trained, total=done, release=release)
            await queue.settle(progress)

    seconds = await cpu_s(redis, push()), await cpu_s(redis, pop())
    await queue.aclose()
    return seconds


async def through_pickles(redis: Redis, groups: list[RolloutGroup]) -> tuple[float, float]:
    """CPU seconds of RPUSH and BLPOP of pickled rows, one at a time. Only for one's own data."""
    rows = [_plain(item) for each in groups for item in each.rows]

    async def push() -> None:
        for row in rows:
            await redis.rpush("pickles", pickle.dumps(row))

    async def pop() -> None:
        for _ in rows:
            _, data = await redis.blpop(["pickles"])
            pickle.loads(data)

    return await cpu_s(redis, push()), await cpu_s(redis, pop())


def _plain(item: SAWItem) -> dict[str, list[float]]:
    """A row as lists of numbers, as it comes from a JSON API."""
    streams = {
        "input_ids": item.input_ids,
        "action_mask": item.action_mask,
        "weight": item.weight,
        "logprobs": item.behavior_logprobs,
        "versions": item.versions,
    }
    return {name: array.tolist() for name, array in streams.items() if array is not None}


async def admission_us(redis: Redis, url: str, actors: int) -> float:
    """CPU time of the server per admission, in microseconds, while so many actors live."""
    await redis.flushall()
    queue = RedisQueue(url, "admissions")
    trainer = TrainerReport(version=0, groups_per_batch=actors, group_size=ROWS, max_lag=0)
    await queue.take_over(trainer, kept="", total=0)
    reports = [ActorReport(name=f"actor-{n}", running=0, version=0) for n in range(actors)]
    for report in reports:
        await queue.admit(report, 1)
    before = await server_s(redis)
    for n in range(ADMISSIONS):
        # Every other one has ended its group, so that its place goes to the next.
        await queue.admit(replace(reports[n % actors], running=n % 2), 1)
    seconds = await server_s(redis) - before
    await queue.aclose()
    return 1e6 * seconds / ADMISSIONS


async def measure(url: str, repeats: int, megabytes: int) -> Table:
    """Rows per CPU-second of each size and way; pops are kept in results/queue.json."""
    redis, kept = Redis.from_url(url), list[object]()
    admissions = {n: await admission_us(redis, url, n) for n in ACTORS}
    print("admission:", ", ".join(f"{us:.0f} us with {n:,} actors" for n, us in admissions.items()))
    table = Table("item", "way", "push /s", "pop /s")
    for name, length in LENGTHS.items():
        size = len(group_to_bytes(group("k", length)))
        groups = [group(f"{i}", length) for i in range(max(BATCH, megabytes * 10**6 // size))]
        ways: dict[str, Callable[[], Awaitable[tuple[float, float]]]] = {
            "ours": lambda each=groups: through_queue(redis, url, each),
            "pickles": lambda each=groups: through_pickles(redis, each),
        }
        seconds: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        # In turns, so that a change of the machine's load meets both ways.
        for _ in range(repeats):
            for way, work in ways.items():
                await redis.flushall()
                seconds[way].append(await work())
        rows = ROWS * len(groups)
        pushes = {way: rate_of(rows, [push for push, _ in each]) for way, each in seconds.items()}
        pops = {way: rate_of(rows, [pop for _, pop in each]) for way, each in seconds.items()}
        for way in ways:
            table.add_row(name, way, f"{pushes[way].median:,.0f}", f"{pops[way].median:,.0f}")
        kept.append(kept_line(f"queue, decoded pop, {name}: rows", pops, goal_ratio=10.0))
    await redis.aclose()
    save("queue", kept)
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=budget(3, 1))
    parser.add_argument("--megabytes", type=int, default=budget(20, 2), help="of groups, per size")
    arguments = parser.parse_args()
    with redis_server() as url:
        Console().print(asyncio.run(measure(url, arguments.repeats, arguments.megabytes)))


if __name__ == "__main__":
    main()
