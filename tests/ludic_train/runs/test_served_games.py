"""A recipe whose actors ask a server, which follows the trainer."""

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager

import pytest
import torch
from fake_vllm.sampler import SamplingVLLM
from served_run import served_run, start_model

from ludic_gym.errors import ConfigError
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.cluster.address import Address, write_address
from ludic_train.cluster.run_actor import until_published
from ludic_train.commands.actor import main as actor
from ludic_train.errors import ActorError, Interrupted
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.models.load import load_model
from ludic_train.runs.folder import RESULTS


@asynccontextmanager
async def with_server(out, *, masks=False, **changes):
    """A run and its server."""
    server = SamplingVLLM(*start_model())
    server.masks = masks
    await server.start()
    try:
        async with served_run(out, server.url, **changes) as run:
            yield run, server
    finally:
        await server.stop()


@pytest.mark.parametrize("lora_rank", [0, 2])
async def test_the_server_follows_the_trainer_and_actors_the_server(tmp_path, lora_rank):
    async with with_server(tmp_path, lora_rank=lora_rank) as (run, server):
        await run.train(8)
        status = await run.status()
        assert (status.trainer.version, status.counts["trained"]) == (8, 8)
        # One batch may be played while another is trained on: 2 * 2 - 1 updates.
        assert max(status.lags) <= 3
        # Published at the start, and once after each batch.
        assert server.calls.count("/finish_weight_update") == 5
        model = run.learner.model
        expected = dict(checkpoint_params(model.named_parameters(), model))
        assert server.version == "8"
        for name, value in server.params.items():
            assert torch.equal(value, expected[name].detach())


async def test_an_actor_ends_with_its_run(tmp_path, caplog):
    # Of an earlier end, after which the run was continued.
    (tmp_path / RESULTS).write_text("{}")
    async with with_server(tmp_path) as (run, _):
        await run.train(2)
        assert not run.actor.done()
        results = tmp_path / "draft"
        results.write_text("{}")
        results.replace(tmp_path / RESULTS)
        summary = await asyncio.wait_for(run.actor, 60)
    assert summary.pushed >= 2
    assert f"the run in {tmp_path} has ended; so does this actor" in caplog.text


async def test_sampling_masks_of_a_server_travel_through_the_queue(tmp_path):
    async with with_server(tmp_path, masks=True, top_p=0.8, max_lag=1) as (run, _):
        await run.train(4)
        lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
        # Of the first update of each batch; without the masks it is 0.02.
        divergence = [line["mismatch/kl_at_lag_0"] for line in lines if "tokens/at_lag_0" in line]
    assert len(divergence) == 2
    assert max(map(abs, divergence)) < 1e-9


async def test_an_actor_refuses_a_server_that_returns_no_sampling_masks(tmp_path):
    async with with_server(tmp_path, top_p=0.8) as (run, _):
        training = asyncio.create_task(run.train(2))
        with pytest.raises(ConfigError, match=r"does not return the tokens .* --sampling-mask"):
            await asyncio.wait_for(run.actor, 60)
        training.cancel()
        await asyncio.gather(training, return_exceptions=True)


async def test_with_the_least_lag_every_batch_is_of_the_newest_params(tmp_path):
    async with with_server(tmp_path, max_lag=1) as (run, _):
        await run.train(8)
        # Of two updates from a batch, the second is one update after what sampled it.
        assert (await run.status()).lags == {1: 8}


async def test_a_trainer_goes_on_while_a_slow_server_gets_the_params(tmp_path):
    async with with_server(tmp_path) as (run, server):
        await run.stage.trainer.publish()
        server.faults["/start_weight_update"] = 1.0
        await run.train(2)
        # The run waits once, at its end.
        lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
        assert 0 < max(line.get("seconds/publish", 0) for line in lines) < 0.5
        assert server.version == "2"


@pytest.mark.parametrize(
    ("minibatches", "max_lag", "saved"),
    [
        # Groups of a further batch may be there when the server dies.
        pytest.param(2, None, [[4], [6]], id="after a batch, all of which is in the params"),
        pytest.param(
            3, 2, [[]], id="within a batch, which a resumed run has to learn from as a whole"
        ),
    ],
)
async def test_asked_to_stop_while_a_server_is_away_a_trainer_saves_what_is_whole(
    tmp_path, minibatches, max_lag, saved
):
    async with with_server(tmp_path, minibatches=minibatches, max_lag=max_lag) as (run, server):
        await run.train(minibatches)
        # The next push is after two updates, or after each of three.
        server.faults["/start_weight_update"] = "die"
        training = asyncio.create_task(run.train(8))
        async with asyncio.timeout(60):
            while server.runner is not None:
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            async with asyncio.timeout(60):
                await training
    first, *later = CheckpointManager(tmp_path / "checkpoints").steps()
    assert first == minibatches
    assert later in saved


async def test_an_actor_can_be_told_another_address_and_waits_for_who_is_there(tmp_path, caplog):
    async with with_server(tmp_path, asked=["http://127.0.0.1:1"]) as (run, server):
        await run.stage.trainer.publish()
        async with asyncio.timeout(60):
            while not caplog.messages:
                await asyncio.sleep(0.05)
        assert "waiting for the servers" in caplog.messages[0]
        assert "http://127.0.0.1:1/weight_info" in caplog.messages[0]
        assert "/inference/v1/generate" not in server.calls


async def test_what_servers_are_to_start_from_is_whole_and_equals_the_model(tmp_path):
    async with with_server(tmp_path, lora_rank=2) as (run, _):
        model, _ = load_model(tmp_path / "published" / "model")
        ids = torch.tensor([[1, 2, 3]])
        with torch.no_grad():
            assert torch.equal(model(ids).logits, run.learner.model(ids).logits)


async def test_an_actor_of_a_run_that_has_other_servers_now_ends(tmp_path):
    async with with_server(tmp_path) as (run, server):
        await run.train(2)
        path = tmp_path / "queue.json"
        path.write_text(path.read_text().replace(server.url, "http://127.0.0.1:1"))
        with pytest.raises(ActorError, match="has other servers now; start the actor again"):
            async with asyncio.timeout(60):
                await run.actor


async def test_an_actor_of_servers_needs_no_params_in_the_folder(tmp_path):
    waiting = asyncio.create_task(until_published(tmp_path, asyncio.Event()))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    text = json.dumps({"url": "file:///q", "key": "k", "servers": ["http://127.0.0.1:1"]})
    (tmp_path / "queue.json").write_text(text)
    await asyncio.wait_for(waiting, 60)


async def test_an_actor_that_waits_says_for_what(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("ludic_train.cluster.run_actor.FIRST_NOTE_S", 0)
    monkeypatch.setattr("ludic_train.cluster.run_actor.NOTE_EVERY_S", 0)
    out, stop = tmp_path / "run", asyncio.Event()
    waiting = asyncio.create_task(until_published(out, stop))

    async def said(text):
        async with asyncio.timeout(60):
            while text not in caplog.text:
                await asyncio.sleep(0.05)

    await said(f"waiting for {out}, where no run is yet: ludic train ... --out {out} --queue URL")
    out.mkdir()
    await said("queue.json, which a run with --queue writes after its supervised updates, and one")
    write_address(out, Address(url="file:///q", key="k"))
    await said(f"waiting for the first params of the run in {out}")
    stop.set()
    with pytest.raises(ActorError, match="stopped before the run in"):
        await waiting


def test_an_actor_without_room_for_an_episode_is_refused_before_its_run_is_there(tmp_path):
    # It would wait for the run without end.
    with pytest.raises(ConfigError, match="concurrency=0"):
        actor([str(tmp_path / "later"), "--concurrency", "0"])
