"""Rollouts per CPU-second with a model that costs nothing.

Three loads: a question with one answer; Tic-Tac-Toe with 200-token prompts whose ids and
log-probs are attached; a client with 20 ms latency, against what that latency allows.

    python benchmarks/rollouts.py
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

import ludic_gym  # noqa: F401  registers the environments
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.spaces import TEXT
from ludic_gym.types import Completion, Env, Message, Sampling, Task, ToolSchema

PROMPT_IDS = tuple(range(200))
COMPLETION_IDS = (7, 9)
LOGPROBS = (-0.5, -0.25)
LATENCY_S = 0.02


class Question(gym.Env[str, str]):
    """One question, one answer: the least that an env can do."""

    observation_space = action_space = TEXT

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """The question."""
        super().reset(seed=seed)
        return "What is 2 + 2?", {"system_prompt": "Answer with a number."}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Right or wrong."""
        return "", float(action == "4"), True, False, {"success": action == "4"}


class InstantClient:
    """Answers at once, or after `latency_s`, with the tokens of a short reply."""

    def __init__(self, reply: Callable[[str], str], latency_s: float = 0.0) -> None:
        self._reply = reply
        self.latency_s = latency_s

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The reply to the last message."""
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        return Completion(
            text=self._reply(messages[-1]["content"] or ""),
            finish_reason="stop",
            sampling=sampling,
            prompt_ids=PROMPT_IDS,
            completion_ids=COMPLETION_IDS,
            logprobs=LOGPROBS,
            policy_version=0,
        )


def first_free_cell(board: str) -> str:
    """The first cell of a Tic-Tac-Toe board that shows its name."""
    return next(cell for cell in board.split() if len(cell) == 2)


@dataclass(frozen=True)
class Load:
    """Episodes to play, and their settings."""

    client: InstantClient
    count: int
    concurrency: int
    seeded: bool


def tasks(env_id: str, load: Load) -> Iterator[Task]:
    """As many tasks as the load says."""
    sampling = Sampling(seed=1, max_tokens=2)
    for i in range(load.count):
        yield Task(env_id=env_id, seed=i if load.seeded else None, sampling=sampling)


async def play(env_id: str, load: Load) -> int:
    """The number of turns that were played."""

    def make_policy(env: Env) -> ChatPolicy:
        return ChatPolicy(load.client)

    turns = 0
    async for episode in run_episodes(
        tasks(env_id, load), make_policy, concurrency=load.concurrency
    ):
        if episode.error:
            raise RuntimeError(episode.error)
        turns += len(episode.rollouts[0].steps)
    return turns


def measure(title: str, env_id: str, load: Load) -> None:
    """Print the best of three repeats."""
    best_cpu_s, best_wall_s, turns = float("inf"), float("inf"), 0
    for _ in range(3):
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        turns = asyncio.run(play(env_id, load))
        best_cpu_s = min(best_cpu_s, time.process_time() - cpu_s)
        best_wall_s = min(best_wall_s, time.perf_counter() - wall_s)
    print(
        f"{title:<26} {load.concurrency:>5} {turns / load.count:>6.2f} "
        f"{load.count / best_cpu_s:>12,.0f} {turns / best_cpu_s:>10,.0f} {share(load, best_wall_s)}"
    )


def share(load: Load, wall_s: float) -> str:
    """Share of the rate that the client's latency allows, beside a loop that only waits."""
    if not load.client.latency_s:
        return ""
    bound_s = load.count * load.client.latency_s / load.concurrency
    waiting_s = min(asyncio.run(only_wait(load)) for _ in range(3))
    return f"{bound_s / wall_s:>8.1%} {bound_s / waiting_s:>10.1%}"


async def only_wait(load: Load) -> float:
    """Seconds that as many waits take in as many bare coroutines."""
    left = iter(range(load.count))

    async def wait() -> None:
        for _ in left:
            await asyncio.sleep(load.client.latency_s)

    start = time.perf_counter()
    await asyncio.gather(*(wait() for _ in range(load.concurrency)))
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="rollouts per repeat")
    count = parser.parse_args().count
    gym.register("bench/Question-v0", Question)
    answer, move = InstantClient(lambda text: "4"), InstantClient(first_free_cell)
    late = InstantClient(lambda text: "4", LATENCY_S)
    print("rollouts and turns per CPU-second")
    print(f"{'':<26} {'conc.':>5} {'turns':>6} {'rollouts/s':>12} {'turns/s':>10}")
    for concurrency in (64, 256):
        for seeded in (True, False):
            word = "seeded" if seeded else "unseeded"
            measure(
                f"question, {word}", "bench/Question-v0", Load(answer, count, concurrency, seeded)
            )
            measure(
                f"Tic-Tac-Toe, {word}", "ludic/TicTacToe-v0", Load(move, count, concurrency, seeded)
            )
    print(f"{'':<57} {'of bound':>13} {'bare loop':>10}")
    measure("question, 20 ms latency", "bench/Question-v0", Load(late, count, 256, False))


if __name__ == "__main__":
    main()
