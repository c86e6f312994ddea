"""Rollouts per CPU-second with a model that costs nothing.

    python benchmarks/rollouts.py [--amount 8192]
    python benchmarks/rollouts.py --memory [--episodes 100000]

Random cells or one answer, prompts of 200 tokens with ids and log-probs, a seed for every episode.
The limit is a loop by hand that resets, completes and steps, and records nothing.
--memory: the client replies after 20 ms, so that all 1,000 episodes are in flight. Goals: 10 MB
above the base for these, and no growth from the tenth part of the episodes in a row to their end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from random import Random

import gymnasium as gym
from rates import Line, Work, budget, print_table, save

import ludic_gym  # noqa: F401  registers the environments
from ludic_gym.bench.runner import bench_tasks, run_bench
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.trail import float_numbers, token_ids
from ludic_gym.types import Completion, Env, Message, Sampling, Task, ToolSchema

# As trails: what a client takes to make them is not what is measured here.
PROMPT_IDS = token_ids(range(200))
COMPLETION_IDS = token_ids((7, 9))
LOGPROBS = float_numbers((-0.5, -0.25))
SAMPLING = Sampling(seed=1, max_tokens=2)
CELLS = tuple(row + column for row in "ABC" for column in "123")


class InstantClient:
    """Replies with the next of the texts, its tokens and log-probs; after `latency_s` if given."""

    def __init__(self, replies: Sequence[str], latency_s: float = 0.0) -> None:
        self._replies = replies
        self._number = 0
        self.latency_s = latency_s

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next text."""
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        self._number += 1
        return Completion(
            text=self._replies[self._number % len(self._replies)],
            finish_reason="stop",
            sampling=sampling,
            prompt_ids=PROMPT_IDS,
            completion_ids=COMPLETION_IDS,
            logprobs=LOGPROBS,
            policy_version=0,
        )


def client_of(env_id: str, latency_s: float = 0.0) -> InstantClient:
    """Random cells for Tic-Tac-Toe, one answer for everything else."""
    moves = Random(0).choices(CELLS, k=997)
    replies = moves if "TicTacToe" in env_id else ["<answer>85</answer>"]
    return InstantClient(replies, latency_s)


def tasks(env_id: str, seeds: Iterator[int], amount: int) -> Iterator[Task]:
    """As many tasks, each with the next seed."""
    for seed in islice(seeds, amount):
        yield Task(env_id=env_id, seed=seed, sampling=SAMPLING)


async def play(
    env_id: str, client: InstantClient, seeds: Iterator[int], *, amount: int, concurrency: int
) -> None:
    """Play as many tasks. Raises RuntimeError for an episode that failed."""

    def make_policy(env: Env) -> ChatPolicy:
        return ChatPolicy(client)

    jobs = tasks(env_id, seeds, amount)
    async for episode in run_episodes(jobs, make_policy, concurrency=concurrency):
        if episode.error:
            raise RuntimeError(episode.error)


def rollouts(env_id: str, *, amount: int = 2048) -> Work:
    """Rollouts of `run_episodes`."""
    client, seeds = client_of(env_id), count()
    while True:
        asyncio.run(play(env_id, client, seeds, amount=amount, concurrency=64))
        yield amount


def bench_episodes(env_id: str, *, amount: int = 4096) -> Work:
    """Episodes of the benchmark's driver, scored, with the totals at the end."""
    client = client_of(env_id)
    env_tasks = bench_tasks(env_id, kwargs={}, episodes=amount, seed=0)
    while True:
        playing = run_bench(env_tasks, lambda env: ChatPolicy(client))
        if asyncio.run(playing).errors:
            raise RuntimeError("an episode failed")
        yield amount


def bare_rollouts(env_id: str, *, amount: int = 512) -> Work:
    """Episodes of a loop by hand: reset, messages, completion, step; nothing is recorded."""
    client, seeds, env = client_of(env_id), count(), gym.make(env_id)

    async def loop() -> None:
        for seed in islice(seeds, amount):
            observation, info = env.reset(seed=seed)
            messages: list[Message] = [{"role": "system", "content": info["system_prompt"]}]
            over = False
            while not over:
                messages.append({"role": "user", "content": observation})
                completion = await client.complete(messages, SAMPLING)
                messages.append({"role": "assistant", "content": completion.text})
                observation, _, terminated, truncated, _ = env.step(completion.text)
                over = terminated or truncated

    while True:
        asyncio.run(loop())
        yield amount


QUESTIONS = "ludic/GSM8K-v0"
GAMES = (
    ("Tic-Tac-Toe", "ludic/TicTacToe-v0", 12_000.0),
    ("GSM8K", "ludic/GSM8K-v0", 18_000.0),
)


def lines(amount: int) -> list[Line]:
    """Both loads; `costs.py` has them with 1,024 episodes in flight."""
    found = []
    for name, env_id, goal in GAMES:
        ours = partial(rollouts, env_id, amount=amount)
        by_hand = ("loop by hand", partial(bare_rollouts, env_id))
        found.append(Line(what=f"{name}: rollouts", ours=ours, limit=by_hand, goal=goal))
    found.append(
        Line(
            what="GSM8K: episodes of a benchmark",
            ours=partial(bench_episodes, "ludic/GSM8K-v0"),
            peers={"rollouts": partial(rollouts, "ludic/GSM8K-v0", amount=amount)},
            goal=17_000,
        )
    )
    return found


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def most_in_flight(seeds: Iterator[int], amount: int) -> float:
    """The most memory while `amount` episodes wait for their replies, twice in a row."""
    client, most = client_of(QUESTIONS, latency_s=0.02), 0.0
    playing = asyncio.create_task(
        play(QUESTIONS, client, seeds, amount=2 * amount, concurrency=amount)
    )
    while not playing.done():
        most = max(most, resident_mb())
        await asyncio.sleep(0.005)
    await playing
    return most


def measure_memory(amount: int) -> None:
    """Print and keep the memory of many episodes at once, and of `amount` in a row."""
    seeds = count()
    instant = client_of(QUESTIONS)
    asyncio.run(play(QUESTIONS, instant, seeds, amount=1000, concurrency=8))
    base = resident_mb()
    flight = asyncio.run(most_in_flight(seeds, 1000))
    print(f"1,000 episodes in flight: {flight - base:.1f} MB above {base:.1f} MB (goal 10)")
    sizes = []
    for _ in range(10):
        asyncio.run(play(QUESTIONS, instant, seeds, amount=amount // 10, concurrency=64))
        sizes.append(resident_mb())
    print(
        f"{amount:,} episodes in a row: {sizes[0]:.1f} MB after a tenth, {sizes[-1]:.1f} at the end"
    )
    found = {"base": base, "in_flight": flight, "in_a_row": sizes, "episodes": amount}
    save("memory", found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--amount", type=int, default=budget(8192, 256), help="rollouts of a batch")
    parser.add_argument("--memory", action="store_true", help="measure memory, and no rates")
    parser.add_argument("--episodes", type=int, default=budget(100_000, 1_000), help="in a row")
    args = parser.parse_args()
    if args.memory:
        measure_memory(args.episodes)
    else:
        print_table("rollouts", lines(args.amount), rounds=5)


if __name__ == "__main__":
    main()
