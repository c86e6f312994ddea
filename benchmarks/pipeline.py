"""Groups per second through the queue, beside bare Redis commands and a list of pickles.

    python benchmarks/pipeline.py [--repeats 3] [--megabytes 40]

Three ways to carry the same groups through one redis-server that this program starts:

    queue     RedisQueue.push, and RedisQueue.read with settle, in batches of 64
    bare      XADD, and XREADGROUP of 64 with XACK and XDEL, of the same bytes
    pickles   RPUSH of a pickle, and BLPOP of one at a time, with pickle.loads

Encoding (group_to_bytes) and decoding (group_from_bytes) are timed apart, since the bare commands
do neither; "queue, decoded" is reading and decoding together, what a trainer does, beside what the
pickles do. Times are CPU seconds of this process and of the server together, so that the load of
other programs does not count; every number is the best of `repeats` in one run: compare ratios.
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
from collections.abc import Awaitable, Callable

import numpy as np
from redis.asyncio import Redis
from rich.console import Console
from rich.table import Table

from ludic_train.group_wire import group_from_bytes, group_to_bytes
from ludic_train.groups import SAWGroup
from ludic_train.queues import Progress, RedisQueue, Trained, TrainerReport
from ludic_train.saw import SAWItem

# Rows of a group, tokens of a row: about 6, 44 and 152 kB on the wire.
SHAPES = {"6 kB": (4, 92), "44 kB": (8, 336), "152 kB": (16, 582)}
BATCH = 64
Seconds = dict[str, float]


def group(key: str, rows: int, length: int) -> SAWGroup:
    """A group with every stream that a policy-gradient loss reads."""
    rng = np.random.default_rng(0)
    mask = np.arange(length) >= length // 3
    row = SAWItem(
        input_ids=rng.integers(0, 150_000, length).astype(np.int32),
        action_mask=mask,
        weight=np.where(mask, 0.7, 0).astype(np.float32),
        behavior_logprobs=np.where(mask, -rng.random(length), 0).astype(np.float32),
        versions=np.where(mask, 3, -1).astype(np.int32),
        group=key,
    )
    return SAWGroup(key=key, items=(row,) * rows)


async def cpu_seconds(redis: Redis) -> float:
    """What this process and the server have computed so far."""
    server = await redis.info("cpu")
    return time.process_time() + server["used_cpu_user"] + server["used_cpu_sys"]


async def timed(redis: Redis, work: Awaitable[object]) -> float:
    """CPU seconds that the work takes."""
    started = await cpu_seconds(redis)
    await work
    return await cpu_seconds(redis) - started


async def through_queue(redis: Redis, url: str, groups: list[SAWGroup]) -> Seconds:
    """Push, read, and read with decoding, of RedisQueue; encoding apart."""
    started = time.process_time()
    messages = [(each.key, group_to_bytes(each)) for each in groups]
    encode = time.process_time() - started
    seconds = {"encode": encode}
    for name, decode in (("pop", False), ("pop, decoded", True)):
        queue = RedisQueue(url, f"q{name}", max_queued=len(groups) + 1)
        trainer = TrainerReport(version=0, groups_per_batch=BATCH)
        await queue.take_over(trainer, kept="", held=0, released=0)
        seconds["push"] = await timed(redis, _push_all(queue, messages))
        seconds[name] = await timed(redis, _read_all(queue, trainer, len(groups), decode))
        await queue.aclose()
    return seconds


async def _push_all(queue: RedisQueue, messages: list[tuple[str, bytes]]) -> None:
    for key, data in messages:
        await queue.push(key, data)


async def _read_all(queue: RedisQueue, trainer: TrainerReport, count: int, decode: bool) -> None:
    done = 0
    while done < count:
        entries = await queue.read(BATCH)
        if decode:
            for entry in entries:
                group_from_bytes(entry.data)
        done += len(entries)
        trained = [Trained(id=entry.id, key=entry.key, lag=0) for entry in entries]
        release = [entry.id for entry in entries]
        await queue.settle(
            Progress(trainer=trainer, trained=trained, released=done, release=release)
        )


async def through_bare_stream(redis: Redis, groups: list[SAWGroup]) -> Seconds:
    """XADD, and XREADGROUP with XACK and XDEL, of the bytes that the queue carries."""
    messages = [(each.key, group_to_bytes(each)) for each in groups]
    await redis.xgroup_create("bare", "g", "0", mkstream=True)

    async def push() -> None:
        for key, data in messages:
            await redis.xadd("bare", {"k": key, "d": data})

    async def pop() -> None:
        done = 0
        while done < len(groups):
            found = await redis.xreadgroup("g", "c", {"bare": ">"}, count=BATCH)
            ids = [entry_id for entry_id, _ in found[0][1]]
            done += len(ids)
            async with redis.pipeline() as pipe:
                pipe.xack("bare", "g", *ids)
                pipe.xdel("bare", *ids)
                await pipe.execute()

    return {"push": await timed(redis, push()), "pop": await timed(redis, pop())}


async def through_pickles(redis: Redis, groups: list[SAWGroup]) -> Seconds:
    """RPUSH of pickles, and BLPOP of one at a time. For data that one has made oneself alone."""
    plain = [_plain(each) for each in groups]

    async def push() -> None:
        for each in plain:
            await redis.rpush("pickles", pickle.dumps(each))

    async def pop() -> None:
        for _ in plain:
            found = await redis.blpop(["pickles"])
            pickle.loads(found[1])

    return {"push": await timed(redis, push()), "pop, decoded": await timed(redis, pop())}


def _plain(each: SAWGroup) -> list[dict[str, list[float]]]:
    """What is pickled where rows are lists of numbers, as they come from a JSON API."""
    return [
        {
            "input_ids": item.input_ids.tolist(),
            "action_mask": item.action_mask.tolist(),
            "weight": item.weight.tolist(),
            "logprobs": [] if item.behavior_logprobs is None else item.behavior_logprobs.tolist(),
            "versions": [] if item.versions is None else item.versions.tolist(),
        }
        for item in each.items
    ]


async def best(repeats: int, once: Callable[[], Awaitable[Seconds]]) -> Seconds:
    """The fewest seconds of each kind."""
    runs = [await once() for _ in range(repeats)]
    return {name: min(run[name] for run in runs) for name in runs[0]}


async def measure(url: str, repeats: int, megabytes: int) -> Table:
    """A row per size and way."""
    redis = Redis.from_url(url)
    table = Table("size", "way", "push /s", "push MB/s", "pop /s", "pop MB/s", "note")
    for name, (rows, length) in SHAPES.items():
        size = len(group_to_bytes(group("k", rows, length)))
        count = max(BATCH, megabytes * 10**6 // size)
        groups = [group(f"{i}", rows, length) for i in range(count)]

        async def fresh(way: Callable[[], Awaitable[Seconds]]) -> Seconds:
            async def once() -> Seconds:
                await redis.flushall()
                return await way()

            return await best(repeats, once)

        queue = await fresh(lambda each=groups: through_queue(redis, url, each))
        bare = await fresh(lambda each=groups: through_bare_stream(redis, each))
        pickles = await fresh(lambda each=groups: through_pickles(redis, each))
        add_rows(table, f"{name} ({size} B)", count, size, queue, bare, pickles)
    await redis.aclose()
    return table


def add_rows(
    table: Table, title: str, count: int, size: int, queue: Seconds, bare: Seconds, pickles: Seconds
) -> None:
    """The three ways through one size, and their ratios."""

    def cells(seconds: float) -> list[str]:
        return [f"{count / seconds:,.0f}", f"{count * size / seconds / 1e6:,.0f}"]

    encode = f"encoding {count / queue['encode']:,.0f}/s"
    pop = f"pop {bare['pop'] / queue['pop']:.0%} of bare, push {bare['push'] / queue['push']:.0%}"
    times = f"pop {pickles['pop, decoded'] / queue['pop, decoded']:.1f} x pickles"
    table.add_row(title, "bare", *cells(bare["push"]), *cells(bare["pop"]), "")
    table.add_row("", "queue", *cells(queue["push"]), *cells(queue["pop"]), pop)
    table.add_row("", "queue, decoded", "", "", *cells(queue["pop, decoded"]), f"{times}; {encode}")
    table.add_row("", "pickles", *cells(pickles["push"]), *cells(pickles["pop, decoded"]), "")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=40, help="of groups, per size")
    arguments = parser.parse_args()
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("install redis-server or valkey-server first")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--dir", folder, "--save", ""]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(1)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            Console().print(asyncio.run(measure(url, arguments.repeats, arguments.megabytes)))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
