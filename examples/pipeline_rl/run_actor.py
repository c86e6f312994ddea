"""An actor: answers questions with the params that the trainer published last.

    python examples/pipeline_rl/run_actor.py --queue redis://localhost:6379 --params params

With `--servers http://localhost:8000` it holds no params, and asks that server. Start as many as
you like, before or after `run_trainer.py`; SIGTERM or Ctrl-C stops one.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack

import even_digit

from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.types import ChatClient, Env
from ludic_train.algorithms.presets import grpo
from ludic_train.inference.client import LocalChatClient
from ludic_train.models.chat_template import chat_renderer
from ludic_train.pipeline.actor import ActorOptions, Refresh, run_pipeline_actor
from ludic_train.pipeline.queues.open_queue import open_queue
from ludic_train.pipeline.server_versions import ServedVersions
from ludic_train.publishers.folder import FollowingClient


def own_sampler(params: str) -> tuple[ChatClient, Refresh]:
    """A client of a model in this process, which follows the folder."""
    model, tokenizer = even_digit.model()
    client = FollowingClient(LocalChatClient(model, tokenizer), model, params)
    return client, client.refresh


def servers(urls: Sequence[str], stack: AsyncExitStack) -> tuple[ChatClient, Refresh]:
    """A client of servers, which the trainer publishes to; `stack` closes its connections."""
    tokenizer = even_digit.model()[1]

    client = VLLMTokenClient(urls, chat_renderer(tokenizer), seeds=False)
    served = ServedVersions(urls, [client])
    stack.push_async_callback(client.aclose)
    stack.push_async_callback(served.aclose)
    return client, served.refresh


async def act(url: str, params: str, urls: Sequence[str]) -> int:
    """Groups pushed until somebody stopped the actor."""
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    async with AsyncExitStack() as stack:
        client, refresh = servers(urls, stack) if urls else own_sampler(params)
        queue = open_queue(url, "even-digit")
        stack.push_async_callback(queue.aclose)

        def make_policy(env: Env) -> ChatPolicy:
            return ChatPolicy(client)

        summary = await run_pipeline_actor(
            even_digit.tasks(secrets.randbits(20)),
            make_policy,
            grpo(),
            queue,
            refresh,
            ActorOptions(group_size=8),
            stop=stop,
        )
    return summary.pushed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queue", default="redis://localhost:6379")
    parser.add_argument("--params", default="params")
    parser.add_argument("--servers", nargs="*", default=[])
    args = parser.parse_args()
    print(f"pushed {asyncio.run(act(args.queue, args.params, args.sampler))} groups")
