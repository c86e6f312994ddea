"""Episodes that are interrupted: by an actor that stops, new params, and a server that is killed.

Redis and servers are processes of their own.
"""

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import forked
import pytest
import torch
from redis_server import free_port, needs_redis

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.clients.vllm import VLLMTokenClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.types import Sampling, Task
from ludic_train.cluster.actor import ActorOptions, run_pipeline_actor
from ludic_train.cluster.codec import group_from_bytes
from ludic_train.cluster.partial_rollouts import ResumableClient
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.cluster.queues.base import TrainerReport
from ludic_train.cluster.queues.open_queue import open_registry
from ludic_train.cluster.queues.redis_queue import RedisQueue
from ludic_train.cluster.server_versions import ServedVersions
from ludic_train.cluster.servers.process import responds
from ludic_train.models.chat_template import chat_renderer
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

pytestmark = needs_redis
MEMBERS, TOKENS, SLICE = 4, 400, 16
WANTED = TrainerReport(version=0, groups_per_batch=1, group_size=MEMBERS, max_lag=2)
OPTIONS = ActorOptions(concurrency=MEMBERS, grace_s=0.0, heartbeat_s=0.1)
keys = count()


def tokenizer():
    return make_tokenizer(["What is 12 + 34? = 0123456789"])


def model(version):
    """Another one for each version."""
    shape = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1}
    return make_tiny_model(tokenizer(), seed=version, **shape)


def sums(seed):
    while True:
        sampling = Sampling(max_tokens=TOKENS, seed=seed)
        yield Task(env_id="ludic/Arithmetic-v0", seed=seed, sampling=sampling)
        seed += 1


class Servers:
    """Servers of the model, and what was published to them."""

    def __init__(self, folder, number):
        save_model(model(0), tokenizer(), folder)
        self.processes, self.urls = [], []
        for _ in range(number):
            port = free_port()
            words = ["serve", str(folder), "--engine", "local", "--port", str(port)]
            with (folder / f"log-{port}").open("wb") as log:
                process = forked.Python(["-m", "ludic_gym", *words], stdout=log, stderr=log)
            self.processes.append(process)
            self.urls.append(f"http://127.0.0.1:{port}")

    async def publish(self, version):
        params = list(model(version).named_parameters())
        await FilesPublisher(self.urls).publish(params, version)

    async def ready(self):
        async with asyncio.timeout(120):
            for url in self.urls:
                while not await asyncio.to_thread(responds, url):
                    await asyncio.sleep(0.1)
        await self.publish(0)

    def kill(self, number):
        self.processes[number].kill()
        self.processes[number].wait()

    def close(self):
        for number, process in enumerate(self.processes):
            if process.poll() is None:
                self.kill(number)


@pytest.fixture
async def servers(tmp_path, request):
    made = Servers(tmp_path, request.param)
    await made.ready()
    yield made
    made.close()


@asynccontextmanager
async def actor(servers, redis_url, key, seed=0):
    """An actor in the background: its client, its stop, and its task."""
    tokens = tokenizer()
    inner = VLLMTokenClient(servers.urls, chat_renderer(tokens), seeds=False)
    client = ResumableClient(
        inner, lambda ids: tokens.decode(ids, skip_special_tokens=True), slice_tokens=SLICE
    )
    served, queue = ServedVersions(servers.urls, [inner]), RedisQueue(redis_url, key)
    stop = asyncio.Event()
    async with open_registry(redis_url, key) as registry:
        running = asyncio.create_task(
            run_pipeline_actor(
                sums(seed),
                lambda env: ChatPolicy(client, LatestObservation(), system_prompt=""),
                queue,
                served.refresh,
                OPTIONS,
                stop=stop,
                registry=registry,
            )
        )
        try:
            yield client, stop, running
        finally:
            stop.set()
            await running
            await queue.aclose()
            await served.aclose()
            await inner.aclose()


async def until(check):
    async with asyncio.timeout(120):
        while not check():
            await asyncio.sleep(0.002)


async def one_group(queue):
    async with asyncio.timeout(120):
        while not (entries := await queue.read(1)):
            pass
    return entries[0], group_from_bytes(entries[0].data)


def assert_sampled_by_their_versions(group):
    """Each token has the log-prob that the params of its own version give it."""
    for row in group.rows:
        ids = torch.tensor(row.input_ids.astype("int64"))[None]
        for version in set(row.versions[row.action_mask].tolist()):
            with torch.no_grad():
                logits = model(version)(ids).logits[0, :-1].log_softmax(-1)
            of_it = torch.tensor(row.versions[1:] == version)
            now = logits.gather(1, ids[0, 1:, None])[:, 0][of_it]
            then = torch.tensor(row.behavior_logprobs[1:])[of_it]
            assert torch.allclose(now, then, atol=1e-3)


@pytest.mark.parametrize("servers", [1], indirect=True)
async def test_another_actor_continues_what_a_stopping_one_began_under_new_params(
    servers, redis_server
):
    key = f"partial-{next(keys)}"
    queue = RedisQueue(redis_server.url, key)
    await queue.take_over(WANTED, kept="", total=0)
    async with actor(servers, redis_server.url, key) as (client, stop, running):
        await until(lambda: client.tokens >= 4 * MEMBERS * SLICE)
        stop.set()
        first = await running
        sampled = client.tokens
    assert (first.pushed, first.handed_over, first.returned) == (0, 1, ())
    await servers.publish(1)
    # Its own tasks are others.
    async with actor(servers, redis_server.url, key, seed=1000) as (client, stop, running):
        entry, group = await one_group(queue)
        assert client.replayed == sampled
    await queue.aclose()
    versions = [row.versions[row.action_mask].tolist() for row in group.rows]
    assert all(found == sorted(found) for found in versions)
    assert {0, 1} <= {version for found in versions for version in found}
    assert sum(found.count(0) for found in versions) == sampled
    assert entry.key == group.key
    assert {each.env_id for each in group.trajectories} == {"ludic/Arithmetic-v0"}
    assert_sampled_by_their_versions(group)


@pytest.mark.parametrize("servers", [2], indirect=True)
async def test_a_server_that_is_killed_costs_one_slice_of_each_of_its_completions(
    servers, redis_server
):
    key = f"partial-{next(keys)}"
    queue = RedisQueue(redis_server.url, key)
    await queue.take_over(WANTED, kept="", total=0)
    async with actor(servers, redis_server.url, key) as (client, _, _):
        await until(lambda: client.tokens >= 4 * MEMBERS * SLICE)
        servers.kill(0)
        _, group = await one_group(queue)
        # Slices that the server had not answered are no tokens here; all others are in the group.
        trained = sum(int(row.action_mask.sum()) for row in group.rows)
        assert trained <= client.tokens <= trained + MEMBERS * TOKENS
    await queue.aclose()
    assert trained >= 4 * MEMBERS * SLICE
    assert_sampled_by_their_versions(group)
