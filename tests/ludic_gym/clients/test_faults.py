"""Five hundred episodes against a server that does everything wrong that servers do."""

import asyncio
import re
from collections import Counter

import gymnasium as gym
import pytest
from aiohttp import web

from ludic_gym.clients.vllm import VLLMChatClient
from ludic_gym.limits import HttpOptions
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.spaces import TEXT
from ludic_gym.types import Sampling, Task

EPISODES = 500
KINDS = 20
GARBLED, RETRIES = 6, 4
# Long enough for a busy machine to answer; the requests that hang all wait at the same time.
REQUEST_TIMEOUT_S = 15.0
GOOD = {
    "prompt_token_ids": [1, 2],
    "choices": [
        {
            "message": {"role": "assistant", "content": "4"},
            "finish_reason": "stop",
            "token_ids": [3],
            "logprobs": {"content": [{"logprob": -0.5}]},
        }
    ],
}


class NumberEnv(gym.Env[str, str]):
    """Shows its seed, and takes any answer."""

    observation_space = action_space = TEXT

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return str(seed), {}

    def step(self, action):
        return "", float(action == "4"), True, False, {}


gym.register("test/Number-v0", NumberEnv)


async def hang(request):
    await asyncio.sleep(60)


async def drip(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(6000):
        await response.write(b" ")
        await asyncio.sleep(0.01)


async def reset(request):
    response = web.StreamResponse(headers={"Content-Length": "5000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    request.transport.abort()
    return response


async def refuse(request):
    return web.Response(status=500, text="out of memory")


async def busy(request):
    return web.Response(status=429, headers={"Retry-After": "0.01"})


async def garble(request):
    return web.Response(text='{"choices": [{"mess')


def changed(**choice):
    async def handler(request):
        return web.json_response({**GOOD, "choices": [{**GOOD["choices"][0], **choice}]})

    return handler


async def answer(request):
    return web.json_response(GOOD)


# What befalls the requests of episode i, by i % KINDS. Those that may pass happen once.
PASSING = {1: refuse, 2: busy, 3: reset}
LATE = f"ClientError: .* sent no response within request_timeout_s={REQUEST_TIMEOUT_S:g}"
LASTING = {
    4: (hang, LATE),
    5: (drip, LATE),
    GARBLED: (garble, "ClientError: .* returned no JSON"),
    7: (
        changed(token_ids=[3, 4]),
        "ClientError: the response has 2 completion ids but 1 log-probs",
    ),
    8: (changed(logprobs={"content": []}), "ClientError: .* 1 completion ids but 0 log-probs"),
}


class FaultyServer:
    """Routes each request by the number that is asked about."""

    def __init__(self):
        self.asked = Counter()

    async def handle(self, request):
        number = int((await request.json())["messages"][0]["content"])
        self.asked[number] += 1
        kind = number % KINDS
        if kind in PASSING and self.asked[number] == 1:
            return await PASSING[kind](request)
        return await LASTING[kind][0](request) if kind in LASTING else await answer(request)


async def emptied(connections):
    """True if all connections are closed within a moment."""
    for _ in range(200):
        if not connections():
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.long
async def test_five_hundred_episodes_survive_a_faulty_server(subtests):
    faulty = FaultyServer()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", faulty.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    tasks = [Task(env_id="test/Number-v0", seed=i) for i in range(EPISODES)]
    options = HttpOptions(backoff_s=0.001, request_timeout_s=REQUEST_TIMEOUT_S, max_retries=RETRIES)
    before = asyncio.all_tasks()

    async with VLLMChatClient(url, "m", options=options) as client:
        episodes = [
            episode
            async for episode in run_episodes(
                tasks, lambda env: ChatPolicy(client), concurrency=256
            )
        ]
        usage = client.usage

    with subtests.test("every episode ends, none is lost"):
        assert sorted(episode.index for episode in episodes) == list(range(EPISODES))
    with subtests.test("failures are named, all others are played"):
        for episode in episodes:
            kind = episode.task.seed % KINDS
            if kind in LASTING:
                assert re.match(LASTING[kind][1], episode.error), episode.error
                assert episode.rollouts == ()
            else:
                assert episode.error is None
                assert episode.rollouts[0].total_reward == 1.0
    with subtests.test("requests are sent again where that helps, and only there"):
        times = {**dict.fromkeys(PASSING, 2), GARBLED: 1 + RETRIES}
        assert all(faulty.asked[i] == times.get(i % KINDS, 1) for i in range(EPISODES))
        # Kinds 4 to 6 fail on the wire; 7 and 8 are answers, which are then found to be wrong.
        # Of each kind there are 25: three that pass, and one that is tried four times more.
        assert (usage.requests, usage.retries, usage.failures) == (425, 75 + 100, 75)
    with subtests.test("no connection stays open"):
        assert await emptied(lambda: runner.server.connections)
    await runner.cleanup()
    with subtests.test("no task keeps running"):
        assert asyncio.all_tasks() <= before


async def test_requests_at_a_server_that_is_dropped_go_to_the_others(http):
    arrived, cut = asyncio.Event(), asyncio.Event()

    async def stuck(request):
        arrived.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cut.set()
            raise

    async with (
        http.serving(stuck) as dead,
        http.serving(http.replying(http.answer())) as sound,
        VLLMChatClient(dead, "m", options=http.FAST) as client,
    ):
        waiting = asyncio.create_task(client.complete(http.ASK, Sampling()))
        await arrived.wait()
        client.use([sound])
        assert (await waiting).text == "4"
        await cut.wait()
        assert (client.usage.requests, client.usage.retries) == (1, 1)
