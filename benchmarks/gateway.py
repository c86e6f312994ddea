"""The gateway before agents of three packages: tokens kept, rows, CPU time per call, streams.

    python benchmarks/gateway.py [--episodes 1000] [--agents-python PATH] [--agents openai ...]

--agents-python: a Python with the packages openai, anthropic and smolagents. The engine is a script
that cuts its texts into tokens at random, as models do and tokenizers do not, so that any text that
was tokenised again would be another row. Agents run in a process of their own; CPU time is that of
the gateway's process.
"""

# ruff: noqa: D102, ANN401
from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.test_utils import TestServer

import ludic_gym as lg
import ludic_train as lt
from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task

AGENTS = Path(__file__).with_name("gateway_agents.py")


class Calculator:
    """An engine that adds by a tool call; it keeps every completion."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.random, self.sampled = tokenizer, random.Random(0), []
        self.pieces: dict[str, list[int]] = {}

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        return await self.streamed(prompt_ids, sampling, lambda token: None)

    async def streamed(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_token: Callable[[int], None]
    ) -> Completion:
        prompt = self.tokenizer.decode(prompt_ids)
        text = self.reply(prompt)
        # A required call begins in the prompt; the model writes the rest.
        if begun := prompt.rpartition("<|im_start|>assistant\n")[2]:
            text = text[text.index('"name": "') + len('"name": "') :]
            assert begun.endswith('"name": "')
        ids = self.cut(text)
        for token in ids:
            on_token(token)
        logprobs = tuple(-self.random.random() for _ in ids)
        made = Completion(
            text=text,
            finish_reason="stop",
            sampling=sampling,
            prompt_ids=tuple(prompt_ids),
            completion_ids=ids,
            logprobs=logprobs,
            policy_version=len(self.sampled) // 100,
        )
        self.sampled.append(made)
        return made

    def reply(self, prompt: str) -> str:
        turn = prompt.rpartition("<|im_start|>user\n")[2]
        is_smol = "final_answer" in prompt
        result = re.search(r"(?:<tool_result>|Observation:)\s*(\d+)", turn)
        if result and is_smol:
            return self.call("final_answer", {"answer": result[1]})
        if result:
            return f"It is  {result[1]}."
        last = re.findall(r"It is  (\d+)", prompt)
        numbers = {"b": 5, "a": int(last[-1])} if last else {"b": 30, "a": 12}
        return "I  add.\n" + self.call("add", numbers)

    def call(self, name: str, arguments: dict) -> str:
        return (
            f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, indent=1)}</tool_call>"
        )

    def cut(self, text: str) -> tuple[int, ...]:
        ids = []
        while text:
            size = self.random.randint(1, 6)
            piece, text = text[:size], text[size:]
            if piece not in self.pieces:
                self.pieces[piece] = self.tokenizer.encode(piece, add_special_tokens=False)
            ids += self.pieces[piece]
        return (*ids, self.tokenizer.eos_token_id)


def rollout_of(session: lt.Session) -> Rollout:
    """The session's calls as one step."""
    completions = tuple(call.reply.completion for call in session.calls)
    step = Step(observation="", decision=Decision(action="", completions=completions), reward=1.0)
    return Rollout(task=Task(env_id="agent"), steps=(step,))


async def measured(kind: str, python: str, engine: Calculator, episodes: int) -> dict:
    """Play the episodes with an agent of that kind."""
    engine.sampled.clear()
    async with lt.Gateway(engine, engine.tokenizer).running() as gateway:
        sessions = [gateway.open(sampling=lg.Sampling(max_tokens=200)) for _ in range(episodes)]
        named = [{"root_url": gateway.root_url(each), "key": each.id} for each in sessions]
        began, cpu = time.perf_counter(), time.process_time()
        out = await agents(kind, python, named)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    rows = [row for each in sessions for row in lt.trajectory_from(rollout_of(each)).rows]
    # In the order of the engine, each call is found in exactly one row, bit for bit.
    kept = np.concatenate([row.behavior_logprobs[row.action_mask] for row in rows])
    ids = np.concatenate([row.input_ids[row.action_mask] for row in rows])
    pairs = [
        (i, np.float32(p))
        for each in engine.sampled
        for i, p in zip(each.completion_ids, each.logprobs, strict=True)
    ]
    calls = len(engine.sampled)
    began = time.process_time()
    for each in engine.sampled[:200]:
        engine.cut(engine.reply(engine.tokenizer.decode(each.prompt_ids)))
    own = (time.process_time() - began) / min(200, calls)
    return {
        "agent": kind,
        "right": f"{out}/{episodes}",
        "calls": calls,
        "sampled": len(pairs),
        "in rows": len(ids),
        "equal": sorted(pairs) == sorted(zip(ids.tolist(), kept, strict=True)),
        "rows/episode": len(rows) / episodes,
        "ms CPU/call": round(1000 * (cpu / calls - own), 3),
        "s": round(seconds, 1),
    }


async def floor(python: str, episodes: int) -> float:
    """Ms of CPU time for a request that a fixed answer of the HTTP library meets."""
    message = {"role": "assistant", "content": "It is 47."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}).encode()
    calls = 0

    async def fixed(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        await request.read()
        return web.Response(body=answer, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", fixed)
    async with TestServer(app) as server:
        named = [{"root_url": str(server.make_url("")).rstrip("/"), "key": "x"}] * episodes
        cpu = time.process_time()
        await agents("openai", python, named)
        return 1000 * (time.process_time() - cpu) / calls


async def agents(kind: str, python: str, sessions: list[dict]) -> str:
    """Play the sessions with an agent of that kind, in a process; what it prints."""
    process = await asyncio.create_subprocess_exec(
        python, str(AGENTS), kind,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate(json.dumps(sessions).encode())
    return out.decode().strip()


async def stream_delay(engine: Calculator, trials: int = 30) -> tuple[float, float]:
    """Median and greatest ms from a token to its event at a client of the same process."""
    import aiohttp

    delays = []

    class Timed(Calculator):
        async def streamed(
            self, prompt_ids: Sequence[int], sampling: Sampling, on_token: Callable[[int], None]
        ) -> Completion:
            await asyncio.sleep(0.03)
            self.at = time.perf_counter()
            on_token(self.tokenizer.encode("a")[0])
            await asyncio.sleep(0.1)
            return await super().streamed(prompt_ids, sampling, on_token)

        def reply(self, prompt: str) -> str:
            return "a" * 5

        def cut(self, text: str) -> tuple[int, ...]:
            return tuple(self.tokenizer.encode("a")) * 5

    timed = Timed(engine.tokenizer)
    body = {"messages": [{"role": "user", "content": "?"}], "stream": True}
    async with (
        lt.Gateway(timed, engine.tokenizer).running() as gateway,
        aiohttp.ClientSession() as http,
    ):
        for _ in range(trials):
            session = gateway.open()
            async with http.post(gateway.base_url(session) + "/chat/completions", json=body) as r:
                async for line in r.content:
                    if b'"content":"a' in line:
                        delays.append(1000 * (time.perf_counter() - timed.at))
                        break
    return float(np.median(delays)), max(delays)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--agents-python", default=sys.executable)
    parser.add_argument("--agents", nargs="+", default=["openai"])
    args = parser.parse_args()
    texts = ["You are a calculator. What is 12 + 30? Use the tool. Add two integers."] * 20
    engine = Calculator(lt.make_tokenizer(texts, vocab_size=400))
    for kind in args.agents:
        print(await measured(kind, args.agents_python, engine, args.episodes), flush=True)
    print(f"ms CPU/call of a fixed answer: {await floor(args.agents_python, args.episodes):.3f}")
    print(
        "ms from a token to its event: median {:.2f}, greatest {:.2f}".format(
            *await stream_delay(engine)
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
