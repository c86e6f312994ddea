"""Memory of many episodes at once, and of many episodes in a row.

    python benchmarks/memory.py [--episodes 100000]

The client replies after 20 ms, so that all 1,000 episodes are in flight. Goals: 10 MB above the
base for these, and no growth from the tenth part of the episodes in a row to their end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from rates import budget, save
from rollouts import client_of, play

GAME = "ludic/GSM8K-v0"


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def most_in_flight(seeds: Iterator[int], amount: int) -> float:
    """The most memory while `amount` episodes wait for their replies, twice in a row."""
    client, most = client_of(GAME, latency_s=0.02), 0.0
    playing = asyncio.create_task(play(GAME, client, seeds, amount=2 * amount, concurrency=amount))
    while not playing.done():
        most = max(most, resident_mb())
        await asyncio.sleep(0.005)
    await playing
    return most


def main() -> None:
    """Print both measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=budget(100_000, 1_000))
    amount, seeds = parser.parse_args().episodes, count()
    instant = client_of(GAME)
    asyncio.run(play(GAME, instant, seeds, amount=1000, concurrency=8))
    base = resident_mb()
    flight = asyncio.run(most_in_flight(seeds, 1000))
    print(f"1,000 episodes in flight: {flight - base:.1f} MB above {base:.1f} MB (goal 10)")
    sizes = []
    for _ in range(10):
        asyncio.run(play(GAME, instant, seeds, amount=amount // 10, concurrency=64))
        sizes.append(resident_mb())
    print(
        f"{amount:,} episodes in a row: {sizes[0]:.1f} MB after a tenth, {sizes[-1]:.1f} at the end"
    )
    found = {"base": base, "in_flight": flight, "in_a_row": sizes, "episodes": amount}
    save("memory", found)


if __name__ == "__main__":
    main()
