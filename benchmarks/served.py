"""Completions per second of the local engine: in this process, and served over HTTP.

    python benchmarks/served.py [--players 64] [--rounds 20] [--repeats 3]

As many coroutines as there are players ask again and again, each as soon as it has its answer:
moves of 4 tokens, replies of 64. The model is tiny, so what is measured is what HTTP costs. Every
number is the best of `repeats`, taken in turns; compare ratios, not absolutes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table

from ludic_gym.clients.vllm_chat import VLLMChatClient
from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.types import ChatClient, Message, Sampling
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

LOADS = {"moves of 4 tokens": (4, 1), "replies of 64 tokens": (64, 8)}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of `ludic serve --engine local`, as long as the block."""
    command = [sys.executable, "-m", "ludic_gym", "serve", str(folder), "--engine", "local"]
    child = subprocess.Popen(
        [*command, "--port", "0", "--threads", "1"], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        yield child.stdout.readline().split()[1]
    finally:
        child.terminate()
        child.wait()


async def completions_per_second(
    client: ChatClient, players: int, rounds: int, max_tokens: int
) -> float:
    """Completions per second while every player sends `rounds` requests."""

    async def play(player: int) -> None:
        for turn in range(rounds):
            text = f"1 2 X {player % 8} {turn % 5}"
            dialog = [Message(role="user", content=text)]
            seed = player * rounds + turn
            await client.complete(dialog, Sampling(seed=seed, max_tokens=max_tokens))

    started = time.perf_counter()
    await asyncio.gather(*(play(player) for player in range(players)))
    return players * rounds / (time.perf_counter() - started)


async def measured(
    clients: dict[str, ChatClient], players: int, rounds: int, repeats: int
) -> dict[str, dict[str, float]]:
    """The best rate of each client for each load."""
    best: dict[str, dict[str, float]] = {name: {} for name in clients}
    for load, (max_tokens, fewer) in LOADS.items():
        for _ in range(repeats):
            for name, client in clients.items():
                rate = await completions_per_second(client, players, rounds // fewer, max_tokens)
                best[name][load] = max(rate, best[name].get(load, 0.0))
    return best


def table(best: dict[str, dict[str, float]]) -> Table:
    """Rates, and how much of the rate in this process each is."""
    shown = Table("completions/s", *LOADS)
    here = best["in this process"]
    for name, rates in best.items():
        cells = (f"{rates[load]:,.0f}  {rates[load] / here[load]:.2f}" for load in LOADS)
        shown.add_row(name, *cells)
    return shown


async def compared(players: int, rounds: int, repeats: int) -> Table:
    """The table of all clients."""
    torch.set_num_threads(1)
    tokenizer = make_tokenizer(["1 2 X\n4 O 6\n7 8 9"])
    model = make_tiny_model(tokenizer, max_positions=256).eval()

    with TemporaryDirectory() as name:
        save_model(model, tokenizer, name)
        with served(Path(name)) as url:
            tokens = VLLMTokenClient(url, chat_renderer(tokenizer))
            async with tokens, VLLMChatClient(url) as chat:
                clients: dict[str, ChatClient] = {
                    "in this process": LocalChatClient(model, tokenizer),
                    "VLLMTokenClient": tokens,
                    "VLLMChatClient": chat,
                }
                return table(await measured(clients, players, rounds, repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--players", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    Console().print(asyncio.run(compared(args.players, args.rounds, args.repeats)))


if __name__ == "__main__":
    main()
