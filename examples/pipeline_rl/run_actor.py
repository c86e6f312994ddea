"""An actor: plays episodes with the newest published params.

    python examples/pipeline_rl/run_actor.py --queue redis://localhost:6379 --params params

With `--servers http://localhost:8000` it holds no params and samples from that server. Start any
number of actors, before or after `run_trainer.py`; SIGTERM or Ctrl-C stops one.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack

import even_digit

import ludic_gym as lg
import ludic_train as lt


def local_model(params: str) -> tuple[lg.ChatClient, lt.Refresh]:
    """A client of a model in this process, which follows the folder."""
    model, tokenizer = even_digit.model()
    client = lt.LocalChatClient(model, tokenizer)
    return client, lt.follow_folder(client, model, params)


def servers(urls: Sequence[str], stack: AsyncExitStack) -> tuple[lg.ChatClient, lt.Refresh]:
    """A client of the servers that the trainer publishes to; `stack` closes its connections."""
    tokenizer = even_digit.model()[1]

    client = lt.token_client(urls, tokenizer, seeds=False)
    served = lt.ServedVersions(urls, [client])
    stack.push_async_callback(client.aclose)
    stack.push_async_callback(served.aclose)
    return client, served.refresh


async def act(url: str, params: str, urls: Sequence[str]) -> int:
    """Number of groups pushed until a signal came."""
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    async with AsyncExitStack() as stack:
        client, refresh = servers(urls, stack) if urls else local_model(params)
        queue = lt.open_queue(url, "even-digit")
        stack.push_async_callback(queue.aclose)

        def make_policy(env: lg.Env) -> lg.ChatPolicy:
            return lg.ChatPolicy(client)

        summary = await lt.run_pipeline_actor(
            even_digit.tasks(secrets.randbits(20)),
            make_policy,
            queue,
            refresh,
            stop=stop,
        )
    return summary.pushed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queue", default="redis://localhost:6379")
    parser.add_argument("--params", default="params")
    parser.add_argument("--servers", nargs="*", default=[])
    args = parser.parse_args()
    print(f"pushed {asyncio.run(act(args.queue, args.params, args.servers))} groups")
