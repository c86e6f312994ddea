"""Rows per second through the queue, beside bare Redis commands and a list of pickles.

    python benchmarks/pipeline.py [--repeats 3] [--megabytes 20]

An item is a row of about 6, 44 or 152 kB as a pickle of lists of numbers: 226, 1,680 or 5,815
tokens. Eight rows make a group. Ways to carry the same rows through one redis-server that this
program starts:

    queue           RedisQueue.push, and RedisQueue.read with settle, in batches of 64 groups
    queue, decoded  the same with group_from_bytes: what a trainer gets
    bare            XADD, and XREADGROUP of 64 with XACK and XDEL, of the queue's bytes
    floor           the same reads with a checksum and one copy of the bytes: the least that a
                    checked read into memory of one's own can take
    objects         the floor with the objects of each row and its views of the group's arrays,
                    which any reader makes that returns rows: no array is checked or filled
    pickles         RPUSH of a pickled row, and BLPOP of one at a time, with pickle.loads
    pickled groups  the same, eight rows at a time

Before that, the server's CPU time per admission, with 10, 100 and 1,000 actors that all play and
want more; with room for a few, so that some are granted a group and others have to wait.

Rates are of CPU seconds, of this process and of the server together, so that the load of other
programs does not count; "by the clock" is what passed meanwhile, in which client and server overlap
where a way lets them. Every number is the best of `repeats` in one run: compare ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import xxhash
from harness.rates import Rate, budget, kept_line, rate_of, save
from redis.asyncio import Redis
from redis_server import redis_server
from rich.console import Console
from rich.table import Table

from ludic_train.cluster.codec import RolloutGroup, group_from_bytes, group_to_bytes
from ludic_train.cluster.queues.base import ActorReport, Progress, Trained, TrainerReport
from ludic_train.cluster.queues.redis_stream import RedisQueue
from ludic_train.types import SAWItem, Trajectory

# Tokens of a row.
LENGTHS = {"6 kB": 226, "44 kB": 1_680, "152 kB": 5_815}
ROWS, BATCH = 8, 64
ACTORS, ADMISSIONS = (10, 100, 1_000), 2_000


@dataclass(frozen=True, slots=True)
class Seconds:
    """Time of a work: computing here and in the server, and by the clock."""

    cpu: float
    clock: float


Times = dict[str, Seconds]


def group(key: str, length: int, rows: int = ROWS) -> RolloutGroup:
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
    return RolloutGroup(key=key, trajectories=(trajectory,) * rows)


async def computed_s(redis: Redis) -> float:
    """CPU time of this process and of the server so far."""
    return time.process_time() + await server_s(redis)


async def server_s(redis: Redis) -> float:
    """CPU time of the server so far."""
    used = await redis.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


async def timed(redis: Redis, work: Awaitable[object]) -> Seconds:
    """Time of the work."""
    computed, started = await computed_s(redis), time.perf_counter()
    await work
    clock = time.perf_counter() - started
    return Seconds(await computed_s(redis) - computed, clock)


async def through_queue(redis: Redis, url: str, groups: list[RolloutGroup]) -> Times:
    """Push, read, and read with decoding, of RedisQueue; encoding apart."""
    started, clock = time.process_time(), time.perf_counter()
    messages = [(each.key, group_to_bytes(each)) for each in groups]
    encoded = Seconds(time.process_time() - started, time.perf_counter() - clock)
    times = {"encode": encoded}
    for name, decode in (("pop", False), ("pop, decoded", True)):
        # As in a run, a queue that is far from full: near it, each push looks for room.
        queue = RedisQueue(url, f"q{name}", max_queued=2 * len(groups))
        trainer = TrainerReport(version=0, groups_per_batch=BATCH, group_size=ROWS)
        await queue.take_over(trainer, kept="", total=0)
        times["push"] = await timed(redis, _push_all(queue, messages))
        times[name] = await timed(redis, _read_all(queue, trainer, len(groups), decode))
        await queue.aclose()
    return times


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
        await queue.settle(Progress(trainer=trainer, trained=trained, total=done, release=release))


async def through_bare_stream(redis: Redis, groups: list[RolloutGroup]) -> Times:
    """XADD, and XREADGROUP with XACK and XDEL, of the bytes that the queue carries."""
    messages = [(each.key, group_to_bytes(each)) for each in groups]

    async def push(stream: str) -> None:
        for key, data in messages:
            await redis.xadd(stream, {"k": key, "d": data})

    async def pop(stream: str, use: Callable[[bytes], object]) -> None:
        done = 0
        while done < len(groups):
            found = await redis.xreadgroup("g", "c", {stream: ">"}, count=BATCH)
            entries = found[0][1]
            for _, fields in entries:
                use(fields[b"d"])
            ids = [entry_id for entry_id, _ in entries]
            done += len(ids)
            async with redis.pipeline() as pipe:
                pipe.xack(stream, "g", *ids)
                pipe.xdel(stream, *ids)
                await pipe.execute()

    times: Times = {}
    uses = {"pop": len, "pop, checked": checked_copy, "pop, objects": maker_of(groups[0])}
    for name, use in uses.items():
        await redis.xgroup_create(name, "g", "0", mkstream=True)
        times["push"] = await timed(redis, push(name))
        times[name] = await timed(redis, pop(name, use))
    return times


def checked_copy(data: bytes) -> bytearray:
    """A copy of the bytes, after a look at their checksum."""
    xxhash.xxh3_64_intdigest(data)
    return bytearray(data)


def maker_of(group: RolloutGroup) -> Callable[[bytes], list[Trajectory]]:
    """Makes the objects of all rows of a message, over the arrays of this group."""
    streams = [
        np.concatenate([getattr(row, name) for row in group.rows])
        for name in ("input_ids", "action_mask", "behavior_logprobs", "versions", "steps", "weight")
    ]
    steps = [
        np.concatenate([getattr(each, name) for each in group.trajectories])
        for name in ("rewards", "parsed", "completions")
    ]
    ends = list(accumulate(len(row.input_ids) for row in group.rows))

    def made(data: bytes) -> list[Trajectory]:
        checked_copy(data)
        found, start = [], 0
        for number, end in enumerate(ends):
            at, step = slice(start, end), slice(number, number + 1)
            row = SAWItem(
                input_ids=streams[0][at],
                action_mask=streams[1][at],
                behavior_logprobs=streams[2][at],
                versions=streams[3][at],
                steps=streams[4][at],
                weight=streams[5][at],
            )
            found.append(
                Trajectory(
                    rows=(row,),
                    rewards=steps[0][step],
                    parsed=steps[1][step],
                    completions=steps[2][step],
                    env_id="ludic/Example-v0",
                )
            )
            start = end
        return found

    return made


async def through_pickles(redis: Redis, groups: list[RolloutGroup], rows: int) -> Times:
    """RPUSH of `rows` rows as a pickle, and BLPOP of one at a time. Only for data of one's own."""
    plain = [_plain(item) for each in groups for item in each.rows]
    entries = [plain[i : i + rows] for i in range(0, len(plain), rows)]

    async def push() -> None:
        for each in entries:
            await redis.rpush("pickles", pickle.dumps(each))

    async def pop() -> None:
        for _ in entries:
            found = await redis.blpop(["pickles"])
            pickle.loads(found[1])

    return {"push": await timed(redis, push()), "pop": await timed(redis, pop())}


def _plain(item: SAWItem) -> dict[str, list[float]]:
    """Rows as lists of numbers, as they come from a JSON API, pickled."""
    streams = {
        "input_ids": item.input_ids,
        "action_mask": item.action_mask,
        "weight": item.weight,
        "logprobs": item.behavior_logprobs,
        "versions": item.versions,
    }
    return {name: array.tolist() for name, array in streams.items() if array is not None}


async def admission_us(redis: Redis, url: str, actors: int) -> float:
    """CPU time of the server per admission, in microseconds. actors: number of those that live."""
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
        report = replace(reports[n % actors], running=n % 2)
        await queue.admit(report, 1)
    seconds = await server_s(redis) - before
    await queue.aclose()
    return 1e6 * seconds / ADMISSIONS


async def admissions(url: str, repeats: int) -> str:
    """A line of times per admission, the least of `repeats`."""
    redis, found = Redis.from_url(url), dict[int, float]()
    for actors in ACTORS:
        found[actors] = min([await admission_us(redis, url, actors) for _ in range(repeats)])
    await redis.aclose()
    times = ", ".join(f"{us:.0f} us with {actors:,} actors" for actors, us in found.items())
    return f"admission: {times}; {found[ACTORS[-1]] / found[ACTORS[0]]:.2f} x"


def best(runs: Sequence[Times]) -> Times:
    """The fewest seconds of each kind."""
    return {
        name: Seconds(min(run[name].cpu for run in runs), min(run[name].clock for run in runs))
        for name in runs[0]
    }


async def measure(url: str, repeats: int, megabytes: int) -> Table:
    """Rows per second, of each size and way; pops are kept in results/queue.json."""
    kept: list[object] = []
    redis = Redis.from_url(url)
    table = Table("item", "way", "push /s", "push MB/s", "pop /s", "pop MB/s", "by the clock")
    for name, length in LENGTHS.items():
        size = len(group_to_bytes(group("k", length)))
        groups = [group(f"{i}", length) for i in range(max(BATCH, megabytes * 10**6 // size))]
        ways: dict[str, Callable[[], Awaitable[Times]]] = {
            "bare": lambda each=groups: through_bare_stream(redis, each),
            "queue": lambda each=groups: through_queue(redis, url, each),
            "pickles": lambda each=groups: through_pickles(redis, each, 1),
            "pickled groups": lambda each=groups: through_pickles(redis, each, ROWS),
        }

        async def once(way: Callable[[], Awaitable[Times]]) -> Times:
            await redis.flushall()
            return await way()

        # In turns, so that a change of the machine's load meets all ways.
        rounds = [{way: await once(work) for way, work in ways.items()} for _ in range(repeats)]
        runs = {way: [each[way] for each in rounds] for way in ways}
        kept.append(kept_pops(name, ROWS * len(groups), runs))
        times = {way: best(each) for way, each in runs.items()}
        times["queue, decoded"] = {"pop": times["queue"].pop("pop, decoded")}
        for way, pop in (("floor", "pop, checked"), ("objects", "pop, objects")):
            times[way] = {"pop": times["bare"].pop(pop)}
        rows, pickled = ROWS * len(groups), len(pickle.dumps([_plain(groups[0].rows[0])]))
        for way, each in times.items():
            table.add_row(name, way, *cells(each, rows, pickled if "pick" in way else size / ROWS))
        table.add_section()
        print(ratios(name, times))
    await redis.aclose()
    save("queue", kept)
    return table


def kept_pops(name: str, rows: int, runs: Mapping[str, Sequence[Times]]) -> object:
    """Popped and decoded rows per CPU-second, as a line of the results."""

    def pops(way: str, pop: str = "pop") -> Rate:
        return rate_of(rows, [times[pop].cpu for times in runs[way]])

    limit = "reads with a checksum and one copy"
    found = {"ours": pops("queue", "pop, decoded"), "pickles": pops("pickles")}
    found[limit] = pops("bare", "pop, checked")
    return kept_line(f"queue, decoded pop, {name}: rows", found, goal_ratio=10.0, limit=limit)


def cells(times: Times, rows: int, row_bytes: float) -> list[str]:
    """Rates of pushing and popping."""
    found = []
    for name in ("push", "pop"):
        rate = rows / times[name].cpu if name in times else None
        found += ["", ""] if rate is None else [f"{rate:,.0f}", f"{rate * row_bytes / 1e6:,.0f}"]
    return [*found, f"{rows / times['pop'].clock:,.0f}"]


def ratios(name: str, times: dict[str, Times]) -> str:
    """Share of the others' rates that the queue takes."""
    bare, queue, decoded = times["bare"], times["queue"], times["queue, decoded"]["pop"]
    said = [f"pop {bare['pop'].cpu / queue['pop'].cpu:.0%} of bare"]
    said += [f"push {bare['push'].cpu / queue['push'].cpu:.0%}"]
    for way in ("pickles", "pickled groups"):
        pop, least, objects = (times[name]["pop"] for name in (way, "floor", "objects"))
        said += [
            f"{pop.cpu / decoded.cpu:.1f} x {way} ({pop.clock / decoded.clock:.1f} x by the clock, "
            f"at most {pop.cpu / objects.cpu:.1f} x with objects, {pop.cpu / least.cpu:.1f} x)"
        ]
    encode = sum(queue[part].cpu for part in ("encode", "push"))
    said += [f"encode and push {times['pickles']['push'].cpu / encode:.1f} x pickles"]
    return f"{name}: " + ", ".join(said)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=budget(3, 1))
    parser.add_argument("--megabytes", type=int, default=budget(20, 2), help="of groups, per size")
    arguments = parser.parse_args()
    with redis_server() as url:
        print(asyncio.run(admissions(url, arguments.repeats)))
        Console().print(asyncio.run(measure(url, arguments.repeats, arguments.megabytes)))


if __name__ == "__main__":
    main()
