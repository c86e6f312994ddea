"""A program of the openai SDK learns to use tools: the program is not changed for that.

    python benchmarks/gateway_learning.py [--updates 60] [--out FILE.json]

The environment hides a key in one of six drawers; a tool asks where, another one takes. A model of
0.1M params first imitates a clumsy player, whose calls went through the same program and the same
gateway; then it learns from rewards. Prints the success on held-out episodes by CPU time.
"""

# ruff: noqa: D102, ANN401
from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import openai

import ludic_gym as lg
import ludic_train as lt
from ludic_gym.tools.tool import tool_schema
from ludic_gym.types import Completion, MakePolicy, Rollout, Sampling

DRAWERS = 6
ENV_ID = "benchmarks/Drawers-v0"
NUMBER = {"type": "object", "properties": {"drawer": {"type": "integer"}}, "required": ["drawer"]}
CLUMSY = 0.5
EVALUATIONS_FROM = 2**40
SDK = openai.AsyncOpenAI(base_url="http://localhost", api_key="of the session", max_retries=0)


class DrawersEnv(lg.TextEnv):
    """One drawer of six has the key: ask for its number, then take it; or guess."""

    action_tools = (
        tool_schema("ask", "Ask.", {"type": "object", "properties": {}}),
        tool_schema("take", "Take.", NUMBER),
    )

    def start(self, options: Mapping[str, Any]) -> tuple[str, str]:
        self._key = 1 + int(self.np_random.integers(DRAWERS))
        return f"Take the key from one of {DRAWERS} drawers.", ""

    def turn(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        call = json.loads(action)
        if call["name"] == "take":
            return lg.end(success=call["arguments"]["drawer"] == self._key)
        return lg.proceed(f"drawer {self._key}", 0.0)


gym.register(ENV_ID, DrawersEnv, max_episode_steps=5)


async def agent(task: lt.AgentTask) -> None:
    """A loop with tools, as any tutorial of the SDK has it."""
    client = SDK.with_options(base_url=task.base_url)
    messages = [{"role": "user", "content": task.prompt}]
    while True:
        made = await client.chat.completions.create(
            model="any", messages=messages, tools=list(task.tools)
        )
        message = made.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            result = await task.call(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            if "over" in result:
                return


class ClumsyPlayer:
    """An engine that plays by the text of the prompt, and at random in half of its calls."""

    def __init__(self, tokenizer: Any, seed: int = 0) -> None:
        self.tokenizer, self.random = tokenizer, random.Random(seed)

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        text = self.reply(self.tokenizer.decode(list(prompt_ids)))
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return Completion(
            text=text,
            finish_reason="stop",
            sampling=sampling,
            prompt_ids=tuple(prompt_ids),
            completion_ids=(*ids, self.tokenizer.eos_token_id),
        )

    def reply(self, prompt: str) -> str:
        found = re.findall(r"<tool_result>\ndrawer (\d)", prompt)
        name, drawer = self.random.choice(["ask", "take"]), self.random.randint(1, DRAWERS)
        if self.random.random() > CLUMSY:
            name, drawer = ("take", int(found[-1])) if found else ("ask", 0)
        call = {"name": name, "arguments": {"drawer": drawer} if name == "take" else {}}
        return f"<tool_call>{json.dumps(call)}</tool_call>"


def tasks(start: int = 0) -> Iterator[lg.Task]:
    """Tasks without end."""
    for number in count(start):
        sampling = lg.Sampling(max_tokens=32, seed=number)
        yield lg.Task(env_id=ENV_ID, seed=number, sampling=sampling, max_turns=5)


async def played(make_policy: MakePolicy, start: int, episodes: int) -> list[Rollout]:
    """Rollouts of some tasks."""
    found = lg.run_episodes(islice(tasks(start), episodes), make_policy)
    return [episode.rollouts[0] async for episode in found]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--demonstrations", type=int, default=400)
    parser.add_argument("--imitated", type=int, default=250)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began = time.process_time()
    player = ClumsyPlayer(lt.make_tokenizer([""]))
    texts = [player.reply("") for _ in range(100)]
    texts += [text for tool in DrawersEnv.action_tools for text in [json.dumps(tool["function"])]]
    player.tokenizer = tokenizer = lt.make_tokenizer(
        [*texts, *lg.TextTools().instructions(DrawersEnv.action_tools).split("\n")] * 3,
        vocab_size=420,
    )
    model = lt.make_tiny_model(tokenizer)
    client = lt.LocalChatClient(model, tokenizer)
    curve = []
    async with lt.Gateway(player, tokenizer).running() as gateway:
        many = asyncio.Semaphore(256)
        policies = lt.AgentPolicies(gateway, agent, running=many)
        shown = await played(policies, 2**30, args.demonstrations)
        rows = lt.rows_from(shown, lt.sft())
        print(f"{len(rows)} rows of {len(shown)} episodes imitated", flush=True)
        publisher = lt.InProcessPublisher(client)
        source = lt.OfflineBatchSource(rows, batch_size=32, seed=0)
        cfg = lt.TrainerConfig(lr=4e-3, decay_updates=args.imitated)
        trainer = lt.Trainer(model, lt.sft(), source, publisher, cfg)
        await trainer.train(args.imitated)
        print(f"imitated  CPU {time.process_time() - began:5.0f} s", flush=True)
        # The same gateway, the same program: another engine.
        gateway.engine = client
        source = lt.RolloutBatchSource(tasks(), policies, groups_per_batch=8, group_size=8)
        algo = lt.grpo()
        trainer = lt.Trainer(model, algo, source, publisher, lt.TrainerConfig(lr=1e-3))
        while True:
            evaluated = await played(policies, EVALUATIONS_FROM, 100)
            success = sum(r.steps[-1].info.get("success", False) for r in evaluated) / 100
            rows_per_episode = sum(len(lt.trajectory_from(r).rows) for r in evaluated) / 100
            seconds = time.process_time() - began
            curve.append((trainer.version, success, rows_per_episode, round(seconds, 1)))
            print(
                "update {:3d}  success {:.2f}  rows {:.2f}  CPU {:5.0f} s".format(*curve[-1]),
                flush=True,
            )
            if trainer.version >= args.updates:
                break
            await trainer.train(10)
    if args.out:
        args.out.write_text(json.dumps(curve) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
