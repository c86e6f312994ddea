"""Seconds to send params to many servers, directly and along trees, over links of limited speed.

    sudo python benchmarks/push_tree.py [--servers 8] [--mbit 200] [--megabytes 32]

Each server is a process in a network namespace of its own, with a link of `mbit` Mbit/s in each
direction to a bridge, and so is the trainer. The servers receive, check and pass on, and do not
sample. "least" is the time that the busiest uplink needs for its copies. "direct" is a fan-out of
all servers. Needs root, `ip` and `tc` of Linux; all it makes ends with its processes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.table import Table

from ludic_train.cluster.publish.tree import Place, tree_sources
from ludic_vllm.receiver import Receiver, Trainer
from ludic_vllm.relay import Arriving
from ludic_vllm.wire import checksum, host_memory

SECRET = b"of the benchmark"
TRAINER = "10.9.0.1"
# A token bucket lets this much pass at once.
BURST_KB = 256


def serve(number: int, port: int) -> None:
    """Receive what is announced on standard input, a line "session bytes host:port,..." each."""
    receiver = Receiver((TRAINER, port), SECRET, number, timeout_s=120)
    for line in sys.stdin:
        session, size, sources = line.split()
        addresses = [(host, int(port)) for host, port in (s.split(":") for s in sources.split(","))]
        buffer = receiver.fetch((session, 0), host_memory(int(size)), addresses)
        receiver.report((session, 0), "" if checksum(buffer) else "no bytes")
        del buffer


def linked(number: int, mbit: int) -> subprocess.Popen[bytes]:
    """A process whose network namespace has the address 10.9.0.`number` and a limited link."""
    holder = subprocess.Popen(["unshare", "-n", "sleep", "3600"])
    time.sleep(0.05)
    shape = f"tbf rate {mbit}mbit burst {BURST_KB}kb latency 100ms"
    # Downlink at the bridge's end, uplink at the namespace's.
    for command in (
        f"ip link add v{number} type veth peer name eth0 netns {holder.pid}",
        f"ip link set v{number} master bridge0 up",
        f"tc qdisc add dev v{number} root {shape}",
        f"nsenter -t {holder.pid} -n ip addr add 10.9.0.{number}/16 dev eth0",
        f"nsenter -t {holder.pid} -n ip link set eth0 up",
        f"nsenter -t {holder.pid} -n ip link set lo up",
        f"nsenter -t {holder.pid} -n tc qdisc add dev eth0 root {shape}",
    ):
        subprocess.run(command.split(), check=True)
    return holder


def send(args: argparse.Namespace) -> None:
    """Measure in the trainer's namespace; `args.inside` are the ids of the others' holders."""
    trainer = Trainer(SECRET)
    port = trainer.listen(TRAINER)
    words = [sys.executable, __file__, "--port", str(port), "--number"]
    servers = [
        subprocess.Popen(
            ["nsenter", "-t", str(holder), "-n", *words, str(number)],
            stdin=subprocess.PIPE,
            text=True,
        )
        for number, holder in enumerate(args.inside)
    ]
    numbers = range(len(servers))
    members = trainer.members(numbers, 300)
    places = {n: Place(address=members[n], trainer=(TRAINER, port)) for n in numbers}
    buffer = torch.randint(0, 256, (args.megabytes * 10**6,), dtype=torch.uint8)
    one_s = args.megabytes * 8 / args.mbit
    table = Table("fan-out", "levels", "copies per uplink", "s", "least s")
    for fan_out in (len(servers), *args.fan_outs):
        sources = tree_sources(places, fan_out)
        key = (f"s{fan_out}", 0)
        trainer.offer(key, Arriving(buffer, len(buffer)))
        started = time.perf_counter()
        for number, server in enumerate(servers):
            assert server.stdin is not None
            listed = ",".join(f"{host}:{port}" for host, port in sources[number])
            print(key[0], len(buffer), listed, file=server.stdin, flush=True)
        trainer.wait(key, numbers, 600)
        seconds = time.perf_counter() - started
        copies = min(fan_out, len(servers))
        name = "direct" if fan_out == len(servers) else str(fan_out)
        levels = max(map(len, sources.values()))
        table.add_row(name, str(levels), str(copies), f"{seconds:.2f}", f"{copies * one_s:.2f}")
        trainer.drop()
    title = f"{args.megabytes} MB to {len(servers)} servers, {args.mbit} Mbit/s"
    table.title = title
    Console(width=80).print(table)
    for server in servers:
        server.kill()
        server.wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Make the network, measure in it, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--mbit", type=int, default=200)
    parser.add_argument("--megabytes", type=int, default=32)
    parser.add_argument("--fan-outs", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--inside", type=int, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    words = list(sys.argv[1:] if argv is None else argv)
    if args.number is not None:
        serve(args.number, args.port)
    elif args.inside:
        send(args)
    elif os.environ.get("PUSH_TREE_NAMESPACE") is None:
        # The bridge is in a namespace of its own too, and leaves nothing behind.
        environment = os.environ | {"PUSH_TREE_NAMESPACE": "1"}
        own = ["unshare", "-n", sys.executable, __file__, *words]
        sys.exit(subprocess.run(own, env=environment, check=False).returncode)
    else:
        subprocess.run(["ip", "link", "add", "bridge0", "type", "bridge"], check=True)
        subprocess.run(["ip", "link", "set", "bridge0", "up"], check=True)
        holders = [linked(number, args.mbit) for number in range(1, args.servers + 2)]
        try:
            first, *others = (str(holder.pid) for holder in holders)
            inside = [sys.executable, __file__, *words, "--inside", *others]
            subprocess.run(["nsenter", "-t", first, "-n", *inside], check=True)
        finally:
            for holder in holders:
                holder.kill()
                holder.wait()


if __name__ == "__main__":
    main()
