"""Tools of the policy and tools of the environment, side by side.

    python examples/tool_use/errands.py --url http://localhost:8000/v1 --model NAME
    python examples/tool_use/errands.py --offline

First a model solves sums with an adder, which changes nothing and belongs to the policy.
Then it does errands by calls that change a calendar, a bank and a shop, which belong to the
environment; each call is an action. Offline, scripts take the model's place.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack

import ludic_gym as lg


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def adding(messages: Sequence[lg.Message], sampling: lg.Sampling) -> str:
    """Stand in for a model: call the adder, then reply with the sum."""
    last = str(messages[-1]["content"])
    if last.startswith("<tool_result>"):
        return f"<answer>{last.split()[1]}</answer>"
    first, second = map(int, re.findall(r"\d+", last))
    call = {"name": "add", "arguments": {"a": first, "b": second}}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


def with_adder(client: lg.ChatClient) -> lg.MakePolicy:
    """Policies with the adder."""

    def make_policy(env: lg.Env) -> lg.Policy:
        chat = lg.ToolUse(lg.ChatPolicy(client), [lg.as_tool(add)], protocol=lg.TextTools())
        return lg.Parsed(chat, lg.xml_tag_parser("answer"))

    return make_policy


def as_actions(client: lg.ChatClient) -> lg.MakePolicy:
    """Policies without tools: their replies are the calls."""
    return lambda env: lg.ChatPolicy(client)


async def play(env_id: str, make_policy: lg.MakePolicy, episodes: int) -> None:
    """Play, and print every turn of the first episode."""
    sampling = lg.Sampling(temperature=0.0, max_tokens=512, seed=0)
    tasks = [lg.Task(env_id=env_id, seed=i, sampling=sampling) for i in range(episodes)]
    rollouts = [e.rollouts[0] async for e in lg.run_episodes(tasks, make_policy) if e.rollouts]
    first = next(rollout for rollout in rollouts if rollout.task.seed == 0)
    for step in first.steps:
        print(f"  {step.observation}\n> {step.decision.action}")
    solved = sum(rollout.steps[-1].info.get("success", False) for rollout in rollouts)
    print(f"{env_id}: {solved} of {len(rollouts)}\n")


async def main(arguments: argparse.Namespace) -> None:
    """Both environments, one after the other."""
    async with AsyncExitStack() as stack:
        adder, errands = with_adder(lg.ScriptedClient(adding)), lg.OraclePolicy
        if not arguments.offline:
            client = lg.OpenAIChatClient(arguments.url, arguments.model or None)
            await stack.enter_async_context(client)
            adder, errands = with_adder(client), as_actions(client)
        await play("ludic/Arithmetic-v0", adder, arguments.episodes)
        await play("ludic/ToolCalls-v0", errands, arguments.episodes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://localhost:8000/v1")
    parser.add_argument("--model", default="")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--offline", action="store_true")
    asyncio.run(main(parser.parse_args()))
