"""A recipe whose actors ask a server: trainer, actor and server, each with its own params."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
import torch
from fake_vllm.sampler import SamplingVLLM

from ludic_gym.errors import ConfigError
from ludic_train.actor import ActorOptions
from ludic_train.errors import ActorError
from ludic_train.inference.saved import PolicySpec, write_policy_spec
from ludic_train.logs import JSONLLogger
from ludic_train.model import load_model, make_tiny_model, make_tokenizer, save_model
from ludic_train.publishers.checkpoint_names import checkpoint_params, lora_scaling
from ludic_train.queues import open_queue
from ludic_train.recipes import TIC_TAC_TOE
from ludic_train.recipes.learner import Learner, learner_from_model
from ludic_train.recipes.playing import play_remotely, until_published
from ludic_train.recipes.recipe import own_algorithm, own_games
from ludic_train.recipes.remote import read_address
from ludic_train.recipes.run import Run, Stage, carry_out

OPTIONS = ActorOptions(group_size=2, concurrency=8, grace_s=1.0)
# Every first move of a model that knows nothing is illegal, and equal rewards teach nothing.
ALGO = replace(own_algorithm(0.0), preprocess=None)


@dataclass
class Scene:
    """A run, its only stage, its server, and its actor."""

    learner: Learner
    stage: Stage
    server: SamplingVLLM
    actor: asyncio.Task
    out: object

    async def train(self, updates):
        stage = replace(self.stage, updates=updates)
        with (self.out / "metrics.jsonl").open("a"):
            run = Run(
                out=self.out,
                learner=self.learner,
                stages=(stage,),
                evaluate=nothing,
                eval_every=1000,
                logger=JSONLLogger(self.out / "metrics.jsonl"),
            )
            await carry_out(run, resume=False)
            run.logger.close()

    def updates(self):
        lines = (self.out / "metrics.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if "lag/max" in line]

    async def restart_server(self):
        """Another process at the address, with the params that the run began with."""
        await self.server.stop()
        fresh = SamplingVLLM(*load_model(self.out / "published" / "model"))
        fresh.url = self.server.url
        await fresh.start()
        self.server = fresh


async def nothing(update):
    return {}


@asynccontextmanager
async def playing(out, *, lora_rank=0, **changes):
    """A run of batches of two groups, two updates each."""
    tokenizer = make_tokenizer(["A1 B2 C3"])
    model = make_tiny_model(tokenizer, hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1)
    start = out / "start"
    save_model(model, tokenizer, start / "model")
    write_policy_spec(start, PolicySpec(context="latest", system_prompt=""))
    learner = learner_from_model(str(start), max_tokens=2, lora_rank=lora_rank, seed=0)
    config = replace(
        TIC_TAC_TOE.defaults, out=out, groups=2, group_size=2, minibatches=2, **changes
    )
    server = SamplingVLLM(model, tokenizer)
    await server.start()
    queue = f"file://{out}/queue.sqlite3"
    stage = own_games(TIC_TAC_TOE, config, learner, queue, [server.url])
    stop = asyncio.Event()
    tasks = TIC_TAC_TOE.tasks(5)
    actor = asyncio.create_task(
        play_remotely(out, ALGO, tasks, name="one", options=OPTIONS, stop=stop)
    )
    scene = Scene(learner, stage, server, actor, out)
    try:
        yield scene
        stop.set()
        if not actor.done():
            async with asyncio.timeout(60):
                await actor
    finally:
        actor.cancel()
        await stage.trainer.batch_source.aclose()
        await scene.server.stop()


async def status_of(out):
    address = read_address(out)
    queue = open_queue(address.url, address.key)
    status = await queue.status()
    await queue.aclose()
    return status


@pytest.mark.parametrize("lora_rank", [0, 2])
async def test_the_server_follows_the_trainer_and_actors_the_server(tmp_path, lora_rank):
    async with playing(tmp_path, lora_rank=lora_rank) as scene:
        await scene.train(8)
        status = await status_of(tmp_path)
        assert (status.trainer.version, status.counts["trained"]) == (8, 8)
        # One batch may be played while another is trained on: 2 * 2 - 1 updates.
        assert max(status.lags) <= 3
        # Published at the start, and once after each batch.
        assert scene.server.calls.count("/finish_weight_update") == 5
        scaling = lora_scaling(scene.learner.model)
        expected = dict(
            checkpoint_params(scene.learner.model.named_parameters(), lora_scaling=scaling)
        )
        assert scene.server.version == "8"
        for name, value in scene.server.params.items():
            assert torch.equal(value, expected[name].detach())


async def test_with_the_least_lag_every_batch_is_of_the_newest_params(tmp_path):
    async with playing(tmp_path, max_lag=1) as scene:
        await scene.train(8)
        # Of two updates from a batch, the second is one update after what sampled it.
        assert (await status_of(tmp_path)).lags == {1: 8}


async def test_a_server_that_was_started_again_is_published_to_once_more(tmp_path):
    async with playing(tmp_path) as scene:
        await scene.train(4)
        scene.stage.trainer.batch_source._quiet_s = 0.3
        await scene.restart_server()
        await scene.train(8)
        assert scene.server.version == "8"
        assert len(scene.updates()) == 4
        assert max((await status_of(tmp_path)).lags) <= 3


async def test_what_servers_are_to_start_from_is_whole_and_equals_the_model(tmp_path):
    async with playing(tmp_path, lora_rank=2) as scene:
        model, _ = load_model(tmp_path / "published" / "model")
        ids = torch.tensor([[1, 2, 3]])
        with torch.no_grad():
            assert torch.equal(model(ids).logits, scene.learner.model(ids).logits)


async def test_an_actor_of_a_run_that_has_other_servers_now_ends(tmp_path):
    async with playing(tmp_path) as scene:
        await scene.train(2)
        path = tmp_path / "queue.json"
        path.write_text(path.read_text().replace(scene.server.url, "http://127.0.0.1:1"))
        with pytest.raises(ActorError, match="has other samplers now; start the actor again"):
            async with asyncio.timeout(60):
                await scene.actor


async def test_an_actor_of_servers_needs_no_params_in_the_folder(tmp_path):
    waiting = asyncio.create_task(until_published(tmp_path, asyncio.Event()))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    text = json.dumps({"url": "file:///q", "key": "k", "samplers": ["http://127.0.0.1:1"]})
    (tmp_path / "queue.json").write_text(text)
    await asyncio.wait_for(waiting, 60)


@pytest.mark.parametrize("text", ["{", "[]", '{"url": "redis://x"}', '{"samplers": 3}'])
async def test_a_file_that_names_no_queue_is_refused(tmp_path, text):
    (tmp_path / "queue.json").write_text(text)
    with pytest.raises(ConfigError, match="names no queue"):
        read_address(tmp_path)
