"""Utilization, lag and first bottleneck of a cluster, by simulation of its queue.

    python benchmarks/cluster_sim.py [--updates 60] [--admit-us US] [--svg FILE]

Discrete events, of rollouts and groups: an actor is admitted, its rollouts wait for a sequence of
an inference server and are sampled, the group is pushed, popped, decoded and waits for its batch.
The trainer takes a batch, updates and publishes. Redis and the trainer's reader do one thing at a
time.

Times of push, admission, pop and decoding are measured here first, with a Redis of the program's
own, in CPU seconds of server and client apart. The model is one of 7B parameters, by assumption:
20 ms per token and sequence, 128 sequences per server of one GPU (6,400 tokens/s); an update takes
6 FLOP per param and token, on 8 GPUs of 400 TFLOP/s; 1 s to publish. Lengths of replies are
log-normal with a median of 1,000 tokens, at most 8,192. A second table has batches eight times as
large, and a trainer of eight times as many GPUs.

Simplifications: a request goes to any free sequence of any server, as an ideal balance would have
it; the speed of a sequence does not depend on how many others the server samples; links between
machines take no time. Reports of actors, one a second each, slow Redis down by their share.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cluster_events import Cluster, Outcome, simulated
from pipeline import admission_us, group, through_queue
from redis.asyncio import Redis
from redis_server import redis_server
from rich.console import Console
from rich.table import Table

from ludic_train.cluster.codec import group_from_bytes, group_to_bytes

ACTORS, SERVERS = (10, 100, 1_000, 10_000), (1, 8, 64, 512)
# Of the model, and per second of a GPU of the trainer.
PARAMS, FLOPS, GPUS = 7e9, 400e12, 8


async def measured(url: str) -> dict[str, float]:
    """Service times of the queue for groups of eight rows of 1,680 tokens, in seconds."""
    redis, groups = Redis.from_url(url), [group(f"{i}", 1_680) for i in range(256)]
    before = await redis.info("cpu")
    times = await through_queue(redis, url, groups)
    after = await redis.info("cpu")
    used = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
    # The least of a few, as other programs on the machine make it longer.
    admit_s = 1e-6 * min([await admission_us(redis, url, 100) for _ in range(5)])
    await redis.aclose()
    data, started = group_to_bytes(groups[0]), time.process_time()
    for _ in groups:
        group_from_bytes(data)
    decode_s = (time.process_time() - started) / len(groups)
    # Two pushes and two pops of each group are in `used`; a pop takes the rest of both.
    server_s = used / len(groups) / 2
    return {
        "admit_s": admit_s,
        "report_s": admit_s,
        "push_s": server_s / 2,
        "pop_s": server_s / 2,
        "encode_s": times["encode"].cpu / len(groups) + times["push"].cpu / len(groups),
        "decode_s": decode_s,
    }


def update_seconds(cluster: Cluster, gpus: int) -> float:
    """Seconds of an update, by 6 FLOP per parameter and token."""
    rng = random.Random(0)
    tokens = sum(cluster.tokens(rng) for _ in range(10_000)) / 10_000
    return 6 * PARAMS * tokens * cluster.batch * cluster.group / (gpus * FLOPS)


def clusters(times: dict[str, float], batch: int, gpus: int) -> Iterator[Cluster]:
    """Clusters of all sizes. gpus: of the trainer."""
    for servers in SERVERS:
        for actors in ACTORS:
            cluster = Cluster(actors=actors, servers=servers, batch=batch, publish_s=1.0, **times)
            yield replace(cluster, update_s=update_seconds(cluster, gpus))


def table_of(title: str, outcomes: list[tuple[Cluster, Outcome]]) -> Table:
    """A row per cluster."""
    parts = ("servers", "actors", "trainer", "servers busy", "Redis", "lag 0/1/2/3/4", "dropped")
    table = Table(*parts, "groups/s", "first bottleneck", title=title)
    for cluster, each in outcomes:
        total = sum(each.lags.values()) or 1
        lags = " ".join(f"{each.lags[lag] / total:.0%}" for lag in range(cluster.max_lag + 1))
        shares = [f"{each.busy[name]:.0%}" for name in ("trainer", "servers")]
        rate = each.updates_per_s * cluster.batch
        cells = [f"{each.busy['Redis']:.1%}", lags, f"{each.stale / total:.1%}", f"{rate:.2f}"]
        table.add_row(f"{cluster.servers}", f"{cluster.actors:,}", *shares, *cells, each.bottleneck)
    return table


def draw(path: Path, outcomes: list[tuple[Cluster, Outcome]]) -> None:
    """Draw the utilization of the trainer by number of actors, a line per number of servers."""
    # Only those who draw need it.
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for servers in SERVERS:
        points = [(c.actors, o.busy) for c, o in outcomes if c.servers == servers]
        x = [actors for actors, _ in points]
        label = f"{servers} server{'s' * (servers > 1)}"
        left.plot(x, [busy["trainer"] for _, busy in points], marker="o", label=label)
        right.plot(x, [busy["servers"] for _, busy in points], marker="o", label=label)
    for axes, name in ((left, "trainer"), (right, "servers")):
        axes.set(xscale="log", xlabel="actors", ylabel=f"{name} busy", ylim=(0, 1.05))
    left.legend()
    figure.savefig(path)


def main() -> None:
    """Measure, simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64, help="groups")
    parser.add_argument("--admit-us", type=float, help="of an admission or report, not measured")
    parser.add_argument("--svg", type=Path)
    arguments = parser.parse_args()
    with redis_server() as url:
        times = asyncio.run(measured(url))
    if arguments.admit_us is not None:
        times |= dict.fromkeys(("admit_s", "report_s"), 1e-6 * arguments.admit_us)
    print(", ".join(f"{name} {1e6 * value:.0f} us" for name, value in times.items()))
    console = Console(width=120)
    for scale in (1, 8):
        sizes = clusters(times, scale * arguments.batch, scale * GPUS)
        outcomes = [(each, simulated(each, updates=arguments.updates)) for each in sizes]
        title = f"batches of {scale * arguments.batch} groups, a trainer of {scale * GPUS} GPUs"
        console.print(table_of(title, outcomes))
        if arguments.svg and scale == 1:
            draw(arguments.svg, outcomes)


if __name__ == "__main__":
    main()
