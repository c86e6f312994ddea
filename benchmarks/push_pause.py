"""Pause of a server during a push, beside the seconds that the transfer takes.

    python benchmarks/push_pause.py [--python PATH] [--shapes 135M] [--pushes 5] [--requests 4]

The local server in a process of its own, and with --python the vLLM of that Python on the CPU. The
server samples `requests` completions at a time meanwhile. A row gives the medians over the pushes:

    transfer   s     from the start of the push to the moment when all params have been staged
    MB/s             of the transfer
    pause      s     from the first request for the pause to the last for the resumption
    drain      s     of it, until the requests in flight had ended or were held
    swap/transfer    the pause without the drain, in relation to the transfer
    sampled    tok/s during the transfer, and, in relation to it, between pushes

Compare ratios, not absolutes: other programs on the machine slow all columns down.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import aiohttp
from harness.servers import local_server, vllm_server
from harness.shapes import SHAPES, random_model
from rich.console import Console
from rich.table import Table
from torch import nn

from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.concurrency import cancelled
from ludic_gym.types import Sampling
from ludic_train.cluster.publish.control import PhaseLimits
from ludic_train.cluster.publish.tcp import TcpWire
from ludic_train.cluster.publish.transports import FileWire, Wire
from ludic_train.cluster.publish.vllm import VLLMPublisher
from ludic_train.cluster.servers.server_status import totals
from ludic_train.models.load import save_model
from ludic_train.models.tokenizer import make_tokenizer

SAMPLED = "vllm:generation_tokens_total"
PROMPT, REPLY_TOKENS = 16, 64
WARM_S, USUAL_S = 5.0, 5.0
# The machine may be busy with other programs.
LIMITS = PhaseLimits(pause=600.0)


@dataclass(frozen=True, slots=True)
class Push:
    """Seconds of the parts of a push, and tokens per second that were sampled in its transfer."""

    transfer_s: float
    pause_s: float
    drain_s: float
    rate: float


class TimedPublisher(VLLMPublisher):
    """A publisher to one server that notes when each phase begins."""

    def __init__(self, url: str, wire: Wire) -> None:
        super().__init__(url, wire, limits=LIMITS)
        self.began: dict[str, float] = {}
        run = self.fleet.run

        async def noted(phase: str, *args: object, **kwargs: object) -> None:
            self.began.setdefault(phase, time.perf_counter())
            await run(phase, *args, **kwargs)  # type: ignore[arg-type]

        self.fleet.run = noted  # type: ignore[method-assign,assignment]


@asynccontextmanager
async def under_load(url: str, requests: int) -> AsyncIterator[None]:
    """Sample that many completions at a time until the end of the block.

    Raises the error of a completion that failed.
    """
    async with VLLMTokenClient(url, lambda m, r: [1], seeds=False) as client:

        async def sample(number: int) -> None:
            for i in itertools.count():
                prompt = [3 + (number * 31 + i) % 97 for _ in range(PROMPT)]
                await client.continued(prompt, Sampling(max_tokens=REPLY_TOKENS))

        sampling = [asyncio.ensure_future(sample(n)) for n in range(requests)]
        await asyncio.sleep(WARM_S)
        try:
            yield
            for ended in (task for task in sampling if task.done()):
                ended.result()
        finally:
            await cancelled(sampling)


async def sampled(url: str) -> float:
    """Tokens that the server has sampled so far."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
        return totals(await response.text())[SAMPLED]


async def pushes(url: str, wire: Wire, model: nn.Module, count: int) -> list[Push]:
    """Several pushes, of which the first, with its connection, is left out."""
    publisher, found = TimedPublisher(url, wire), []
    for version in range(count + 1):
        publisher.began.clear()
        before = await sampled(url)
        started = time.perf_counter()
        await publisher.publish(model.named_parameters(), version)
        began = publisher.began
        found.append(
            Push(
                transfer_s=began["pause"] - started,
                pause_s=publisher.pause_s,
                drain_s=began["finish"] - began["pause"],
                rate=(await sampled(url) - before) / (time.perf_counter() - started),
            )
        )
        await asyncio.sleep(1.0)
    return found[1:]


async def between(url: str, seconds: float = USUAL_S) -> float:
    """Tokens per second without a push."""
    before = await sampled(url)
    await asyncio.sleep(seconds)
    return (await sampled(url) - before) / seconds


async def measured(url: str, model: nn.Module, count: int, requests: int) -> list[list[str]]:
    """A row per wire."""
    size, rows = sum(p.nbytes for p in model.parameters()), []
    async with under_load(url, requests):
        usual = await between(url)
        for name, wire in (("TCP", TcpWire()), ("shared memory", FileWire())):
            found = await pushes(url, wire, model, count)
            transfer, pause, drain, rate = (
                median(getattr(push, part) for push in found) for part in Push.__slots__
            )
            rows.append(
                [
                    name,
                    f"{transfer:.3f}",
                    f"{size / 1e6 / transfer:.0f}",
                    f"{pause:.3f}",
                    f"{drain:.3f}",
                    f"{median((p.pause_s - p.drain_s) / p.transfer_s for p in found):.0%}",
                    f"{rate:.0f} ({rate / max(usual, 1e-9):.0%})",
                ]
            )
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="a Python with vLLM for CPUs")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["135M"])
    parser.add_argument("--pushes", type=int, default=5)
    parser.add_argument("--requests", type=int, default=4)
    args = parser.parse_args(argv)
    for name in args.shapes:
        tokenizer = make_tokenizer(["a b c"], vocab_size=4096)
        model = random_model(name)
        params = sum(p.numel() for p in model.parameters())
        columns = ("server", "wire", "transfer s", "MB/s", "pause s", "drain s", "swap/transfer")
        table = Table(*columns, "tok/s", title=f"{name}: {params / 1e6:.1f}M params")
        with TemporaryDirectory() as folder:
            save_model(model, tokenizer, folder)
            servers = {"local": local_server(Path(folder))}
            if args.python is not None:
                servers["vLLM"] = vllm_server(Path(folder), args.python)
            for kind, server in servers.items():
                with server as started:
                    for row in asyncio.run(
                        measured(started.url, model, args.pushes, args.requests)
                    ):
                        table.add_row(kind, *row)
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
