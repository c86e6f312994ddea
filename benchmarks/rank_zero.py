"""CPU time of the rank that plays, per episode of MATH: prompt, request, grading and rows.

    python benchmarks/rank_zero.py [--episodes 1280]

A server in another process replies at once with 500 tokens, ids and log-probs. What this process
spends bounds the episodes a second that one rank can play for all of a run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time

import ludic_gym as lg
import ludic_train as lt
from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_train.models.chat_template import chat_renderer
from ludic_train.runs.recipe import recipe_for
from ludic_train.runs.tasks import training_tasks

TOKENS, BATCH = 500, 64
SERVER = """
import sys
from aiohttp import web

async def generate(request):
    await request.read()
    return web.Response(body=sys.argv[1].encode(), content_type="application/json")

app = web.Application()
app.router.add_post("/inference/v1/generate", generate)
runner = web.AppRunner(app)

async def serve():
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)

import asyncio
loop = asyncio.new_event_loop()
loop.run_until_complete(serve())
loop.run_forever()
"""


def response() -> str:
    """The response of the generate route to each prompt."""
    ids = [3 + 7 * i % 250 for i in range(TOKENS)]
    choice = {
        "index": 0,
        "text": "Let us compute. " * 60 + "The answer is \\boxed{12}.",
        "token_ids": ids,
        "finish_reason": "stop",
        "logprobs": {"content": [{"token_id": i, "logprob": -0.5123456} for i in ids]},
        "weight_versions": [{"version": "0", "start": 0, "end": TOKENS}],
    }
    usage = {"prompt_tokens": 50, "completion_tokens": TOKENS}
    return json.dumps({"request_id": "a", "model": "m", "choices": [choice], "usage": usage})


async def measure(url: str, episodes: int) -> float:
    """CPU milliseconds of this process per episode."""
    recipe = recipe_for(["ludic/MATH-v0"], model="m")
    render = chat_renderer(lt.make_tokenizer(["Let us compute. The answer is 12."]))
    async with VLLMTokenClient(url, render, "m") as client:
        source = lt.RolloutBatchSource(
            training_tasks(recipe, recipe.defaults, 0),
            lg.Harness.of("boxed").make_policy(client),
            groups_per_batch=BATCH // 8,
            group_size=8,
            concurrency=BATCH,
        )
        # The first batch imports and connects.
        await source.next_batch(lt.reinforce())
        start = time.process_time()
        for _ in range(episodes // BATCH):
            await source.next_batch(lt.reinforce())
        return 1000 * (time.process_time() - start) / (episodes // BATCH * BATCH)


def main() -> None:
    """Start the server, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1280)
    options = parser.parse_args()
    command = [sys.executable, "-c", SERVER, response()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            each = asyncio.run(measure(url, options.episodes))
        finally:
            server.kill()
    print(
        f"{each:.2f} ms of CPU per episode: {1000 / each:,.0f} episodes, "
        f"{1000 * TOKENS / each:,.0f} sampled tokens per CPU-second"
    )


if __name__ == "__main__":
    main()
