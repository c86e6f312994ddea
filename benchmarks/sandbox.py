"""Cost of a sandbox: latency of a small program, and programs per second, per back end.

Beside a plain `subprocess.run` of the same interpreter (without the site module, as in sandboxes,
and with it), in rounds that take turns, so that a busy machine slows all of them. Ratios are of
medians: latency, and time per program where several run at once.

    python benchmarks/sandbox.py
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ludic_gym.sandbox.choice import BACKENDS, open_sandbox, why_not
from ludic_gym.sandbox.launch import interpreter
from ludic_gym.sandbox.monty import MontySandbox
from ludic_gym.sandbox.types import Limits, Program, Sandbox

SOURCE = "print(6 * 7)"
LIMITS = Limits(wall_s=120.0)
# As long as a model takes to think: time for the reserve to fill up.
PAUSE_S = 0.3
BASE = "plain subprocess"

Run = Callable[[], Awaitable[bytes]]


def plain(flags: tuple[str, ...], threads: ThreadPoolExecutor) -> Run:
    """A plain subprocess, with a time limit and nothing else."""
    command = [interpreter()[0], *flags, "-c", SOURCE]

    def once() -> bytes:
        return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout

    async def run() -> bytes:
        return await asyncio.get_running_loop().run_in_executor(threads, once)

    return run


def boxed(sandbox: Sandbox) -> Run:
    """The same program in a sandbox."""

    async def run() -> bytes:
        return (await sandbox.run(Program(source=SOURCE), limits=LIMITS)).stdout

    return run


async def latency_ms(run: Run, pause_s: float) -> float:
    """Of one program, after a pause."""
    await asyncio.sleep(pause_s)
    began = time.perf_counter()
    answer = await run()
    if answer != b"42\n":
        raise RuntimeError(f"the program printed {answer!r}")
    return (time.perf_counter() - began) * 1e3


async def rate(run: Run, count: int) -> float:
    """Programs per second, as many at a time as the runner allows."""
    began = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(count)))
    return count / (time.perf_counter() - began)


async def measure(runs: dict[str, Run], rounds: int, count: int) -> None:
    """Print a line per runner."""
    for run in runs.values():
        await run()
    alone: dict[str, list[float]] = {name: [] for name in runs}
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            alone[name] += [await latency_ms(run, PAUSE_S) for _ in range(5)]
            rates[name].append(await rate(run, count))
    latency = {name: statistics.median(values) for name, values in alone.items()}
    speed = {name: statistics.median(values) for name, values in rates.items()}
    print(f"{'':34s} {'latency':>10s} {'of plain':>9s} {'programs/s':>11s} {'time of plain':>14s}")
    for name in runs:
        print(
            f"{name:34s} {latency[name]:7.1f} ms {latency[name] / latency[BASE]:8.2f}x "
            f"{speed[name]:11.1f} {speed[BASE] / speed[name]:13.2f}x"
        )


def sandboxes(concurrency: int) -> dict[str, Sandbox]:
    """Every sandbox that works here, with a reserve and without."""
    opened: dict[str, Sandbox] = {}
    for name in (*BACKENDS, "process"):
        if name in BACKENDS and (reason := why_not(name)):
            print(f"{name} does not work here: {reason}")
            continue
        make = partial(open_sandbox, name, allow_unsafe=True, concurrency=concurrency)
        opened[f"{name}, with a reserve"] = make()
        opened[f"{name}, without"] = make(warm=0)
    opened["monty"] = MontySandbox()
    return opened


async def main() -> None:
    """Measure what works here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=60, help="programs per round")
    parser.add_argument("--concurrency", type=int, default=4)
    args = parser.parse_args()
    opened = sandboxes(args.concurrency)
    with ThreadPoolExecutor(args.concurrency) as threads:
        runs = {
            BASE: plain(("-I", "-S"), threads),
            "plain subprocess, with site": plain((), threads),
            **{name: boxed(sandbox) for name, sandbox in opened.items()},
        }
        await measure(runs, args.rounds, args.count)
    for sandbox in opened.values():
        await sandbox.close()


if __name__ == "__main__":
    asyncio.run(main())
