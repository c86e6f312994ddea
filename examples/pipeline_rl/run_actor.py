"""An actor: answers questions with the params that the trainer published last.

    python examples/pipeline_rl/run_actor.py --queue redis://localhost:6379 --params params

Start as many as you like, before or after `run_trainer.py`; SIGTERM or Ctrl-C stops one.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal

import even_digit

from ludic_gym.policies import ChatPolicy
from ludic_gym.types import Env
from ludic_train.actor import ActorOptions, run_pipeline_actor
from ludic_train.algorithms import make_grpo
from ludic_train.inference import EmbeddedChatClient
from ludic_train.published import FollowingClient
from ludic_train.queues import open_queue


async def act(url: str, params: str) -> int:
    """Groups pushed until somebody stopped the actor."""
    model, tokenizer = even_digit.model()
    client = FollowingClient(EmbeddedChatClient(model, tokenizer), model, params)

    def make_policy(env: Env) -> ChatPolicy:
        return ChatPolicy(client)

    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    queue = open_queue(url, "even-digit")
    summary = await run_pipeline_actor(
        even_digit.tasks(secrets.randbits(20)),
        make_policy,
        make_grpo(),
        queue,
        client.refresh,
        ActorOptions(group_size=8),
        stop=stop,
    )
    await queue.aclose()
    return summary.pushed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queue", default="redis://localhost:6379")
    parser.add_argument("--params", default="params")
    arguments = parser.parse_args()
    print(f"pushed {asyncio.run(act(arguments.queue, arguments.params))} groups")
