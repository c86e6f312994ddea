"""Requests per CPU-second of the clients of hosted models, beside that of token-exact vLLM.

    python benchmarks/hosted.py

A server in another process sends each client a reply of 200 words after 20 ms; the time is that of
the client's process alone, with 64 or 256 requests in flight. The goal is 2 ms a request.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from aiohttp import web
from rates import Line, MakeWork, Work, budget, print_table

from ludic_gym.clients.anthropic import AnthropicChatClient
from ludic_gym.clients.openai import OpenAIChatClient
from ludic_gym.clients.transport import HttpTransport
from ludic_gym.types import Message, Sampling

GOAL = 500
IN_FLIGHT = (64, 256)
QUESTION: list[Message] = [{"role": "user", "content": "word " * 200}]
# A reply in both formats.
REPLY = {
    "choices": [{"message": {"content": "word " * 200}, "finish_reason": "stop"}],
    "content": [{"type": "text", "text": "word " * 200}],
}


async def reply(request: web.Request) -> web.Response:
    await request.read()
    await asyncio.sleep(0.02)
    return web.json_response(REPLY)


def serve() -> None:
    app = web.Application()
    app.router.add_post("/{path:.*}", reply)
    # The port is printed first, in its own line.
    web.run_app(app, host="127.0.0.1", port=0, print=lambda text: print(text, flush=True))


@contextmanager
def server() -> Iterator[str]:
    """The address of a server of its own process, which ends with the block."""
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = next(line for line in process.stdout if "http://" in line)
            yield line[line.index("http://") :].split()[0]
        finally:
            process.terminate()


def requests(kind: str, url: str, in_flight: int) -> Work:
    """Batches of as many requests as are in flight."""
    body = {"model": "m", "messages": QUESTION}
    openai = OpenAIChatClient(f"{url}/v1", "m")
    anthropic = AnthropicChatClient(url, "m")
    http = HttpTransport([url], "NO_KEY")
    send = {
        "openai": partial(openai.complete, QUESTION, Sampling()),
        "anthropic": partial(anthropic.complete, QUESTION, Sampling()),
        "aiohttp": partial(http.post, "/v1/chat/completions", body),
    }[kind]

    async def batch() -> None:
        await asyncio.gather(*(send() for _ in range(in_flight)))

    with asyncio.Runner() as runner:
        while True:
            runner.run(batch())
            yield in_flight


def main() -> None:
    """Print the table."""
    with server() as url:

        def work(kind: str, in_flight: int) -> MakeWork:
            return partial(requests, kind, url, in_flight)

        lines = [
            Line(
                what=f"{kind}, {in_flight} in flight",
                ours=work(kind, in_flight),
                peers={"aiohttp, as for vLLM": work("aiohttp", in_flight)},
                goal=GOAL,
            )
            for kind in ("openai", "anthropic")
            for in_flight in IN_FLIGHT
        ]
        print_table("hosted", lines, seconds=0.5, rounds=budget(5, 1))


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
