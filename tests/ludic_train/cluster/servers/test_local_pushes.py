"""Params come to the local server whole or not at all, while it samples."""

import asyncio
import copy
import subprocess

import forked
import peft
import pytest
import torch
from local_pushes import assert_has, client_of, kept, publisher, staged

from ludic_gym.types import Sampling
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.cluster.publish.lora import LoRAPublisher
from ludic_train.errors import PublishError
from ludic_train.models.load import save_model

both_heads = pytest.mark.parametrize("model", [True, False], indirect=True, ids=["tied", "untied"])


@both_heads
async def test_each_push_brings_the_trainers_params(server):
    async with client_of(server) as client:
        target = publisher(server, clients=[client])
        for version in range(3):
            server.change(version)
            await target.publish(server.model.named_parameters(), version)
            assert_has(server, kept(server.model), str(version))
            completion = await client.continued([5, 6, 7], Sampling(max_tokens=12))
            expected = server.logprobs([5, 6, 7], completion.completion_ids)
            assert completion.logprobs == pytest.approx(expected.tolist(), abs=1e-5)
            assert completion.versions == (version,) * len(completion.completion_ids)
        assert target.fleet.replicas[0].describe().endswith("version 2: ready")


@pytest.mark.parametrize(("dtype", "is_warned"), [("bfloat16", True), ("float32", False)])
async def test_of_a_server_that_computes_in_another_type_there_is_a_warning(
    server, caplog, dtype, is_warned
):
    target = FilesPublisher(server.url, model=server.model, dtype=dtype)
    await target.publish(server.model.named_parameters(), 1)
    said = f"{server.url} computes in float32, and the trainer in bfloat16"
    assert (said in caplog.text) == is_warned


async def test_all_servers_of_a_fleet_get_the_same(servers):
    target = publisher(*servers)
    servers[0].change(1)
    await target.publish(servers[0].model.named_parameters(), 1)
    for server in servers:
        assert_has(server, kept(servers[0].model), "1")


@pytest.mark.long
async def test_with_64_requests_and_many_pushes_every_completion_is_of_the_version_it_names(server):
    history, done, last = {}, [], 6
    async with client_of(server) as client:
        target = publisher(server, clients=[client])

        async def publish(version):
            history[version] = kept(server.model)
            await target.publish(history[version].items(), version)

        async def ask(number):
            while not done or done[-1].policy_version < last:
                prompt = [number % 250, 3 + len(done) % 7]
                sampling = Sampling(max_tokens=1 + number % 40, temperature=1.2)
                done.append(await client.continued(prompt, sampling))

        await publish(0)
        # The client compares the log-probs of two temperatures first, and knows of no push between.
        await client.continued([5], Sampling(max_tokens=1, temperature=1.2))
        asking = asyncio.gather(*map(ask, range(64)))
        for version in range(1, last + 1):
            while not done or done[-1].policy_version < version - 1:
                await asyncio.sleep(0.001)
            server.change(version)
            await publish(version)
        await asking
    assert {completion.policy_version for completion in done} == set(range(last + 1))
    # A push comes between two tokens of what is in flight.
    mixed = [completion for completion in done if len(set(completion.versions)) > 1]
    assert mixed
    for completion in [*mixed, *done[:: max(1, len(done) // 100)]]:
        assert completion.policy_version == min(completion.versions)
        assert sorted(completion.versions) == list(completion.versions)
        assert_of_its_versions(server, completion, history)


def assert_of_its_versions(server, completion, history, temperature=1.2):
    """Each token has the log-prob of the params that it names, given all tokens before it."""
    ids, versions = completion.completion_ids, torch.tensor(completion.versions)
    for version in set(completion.versions):
        expected = server.logprobs(completion.prompt_ids, ids, history[version], temperature)
        difference = (torch.tensor(completion.logprobs) - expected)[versions == version]
        assert difference.abs().max() < 1e-5


WRONG = {
    "shape": ("model.norm.weight", torch.zeros(3), r"no params of model.norm.weight \[3\] float32"),
    "dtype": ("model.norm.weight", torch.zeros(64).half(), r"\[64\] float16.*\[64\] float32"),
    "name": ("model.norm.bias", torch.zeros(64), "no params of model.norm.bias"),
    "no dtype": ("model.norm.weight", torch.zeros(64, dtype=torch.bool), "bool"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_params_that_do_not_fit_change_nothing(server, what):
    name, tensor, reason = WRONG[what]
    before, target = kept(server.model), publisher(server)
    server.change(1)
    wrong = {**kept(server.model), name: tensor}
    with pytest.raises(PublishError, match=f"failed in update: .*{reason}"):
        await target.publish(wrong.items(), 1)
    assert_has(server, before, "default")
    assert not server.served.gate.is_paused
    await target.publish(server.model.named_parameters(), 2)
    assert_has(server, kept(server.model), "2")


async def test_a_missing_param_changes_nothing(server):
    before, server_params = kept(server.model), dict(server.model.named_parameters())
    del server_params["model.norm.weight"]
    with pytest.raises(PublishError, match=r"failed in update: .*lacks model.norm.weight"):
        await publisher(server).publish(server_params.items(), 1)
    assert_has(server, before, "default")


async def test_a_second_publisher_is_refused_until_the_session_is_closed(server):
    first, second = publisher(server), publisher(server)
    await server.post("/start_weight_update")
    with pytest.raises(PublishError, match=r"already active.*another publisher uses the server"):
        await first.publish(server.model.named_parameters(), 1)
    status, reason = await server.refusal("/update_weights", {"update_info": {"abort": True}})
    assert (status, reason) == (500, "the update was aborted on request")
    await second.publish(server.model.named_parameters(), 2)
    assert server.served.version == "2"


TRAINER = """
import asyncio, sys, time
from ludic_train.cluster.publish import control
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.models.load import load_model

async def hang(self):
    print("half", flush=True)
    await asyncio.sleep(600)

control.ControlClient.pause = hang
model, _ = load_model(sys.argv[2])
asyncio.run(FilesPublisher(sys.argv[1]).publish(model.named_parameters(), 1))
"""


async def test_after_a_trainer_was_killed_the_next_one_takes_over(server, tokenizer, tmp_path):
    save_model(server.model, tokenizer, tmp_path)
    before = kept(server.model)
    words = ["-c", TRAINER, server.url, str(tmp_path)]
    with forked.Python(words, stdout=subprocess.PIPE) as trainer:
        assert await asyncio.to_thread(trainer.stdout.readline) == "half\n"
        trainer.kill()

    assert_has(server, before, "default")
    server.change(1)
    target = publisher(server)
    with pytest.raises(PublishError, match=r"call take_over\(\)"):
        await target.publish(server.model.named_parameters(), 2)
    await target.take_over()
    await target.publish(server.model.named_parameters(), 3)
    assert_has(server, kept(server.model), "3")
    assert not server.served.gate.is_paused


async def test_a_push_that_ends_between_its_staging_and_its_swap_leaves_the_old_version(
    server, tmp_path
):
    before = kept(server.model)
    server.change(1)
    async with client_of(server) as client:
        await server.post("/start_weight_update")
        assert await staged(server, tmp_path) == 200
        # Here the trainer is gone, and all params are staged.
        assert_has(server, before, "default")
        completion = await client.continued([5, 6, 7], Sampling(max_tokens=12))
        expected = server.logprobs([5, 6, 7], completion.completion_ids, before)
        assert completion.logprobs == pytest.approx(expected.tolist(), abs=1e-5)
    server.change(2)
    target = publisher(server)
    await target.take_over()
    await target.publish(server.model.named_parameters(), 2)
    assert_has(server, kept(server.model), "2")


def torn(folder):
    (path,) = folder.glob("*")
    path.write_bytes(path.read_bytes()[:-8])


def removed(folder):
    for path in folder.glob("*"):
        path.unlink()


@pytest.mark.parametrize("change", [torn, removed])
async def test_files_that_are_not_whole_change_nothing(server, tmp_path, change):
    before = kept(server.model)
    server.change(1)
    await server.post("/start_weight_update")
    assert await staged(server, tmp_path, change) == 500
    assert_has(server, before, "default")
    await publisher(server).publish(server.model.named_parameters(), 2)
    assert_has(server, kept(server.model), "2")


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/update_weights", {"update_info": {}}, "no weight update is open"),
        ("/finish_weight_update", None, "no weight update is open"),
    ],
)
async def test_steps_out_of_order_are_refused(server, path, body, reason):
    status, said = await server.refusal(path, body)
    assert status == 500
    assert reason in said


async def test_a_session_without_all_params_cannot_be_finished(server):
    await server.post("/start_weight_update")
    status, reason = await server.refusal("/finish_weight_update", {"weight_version": "1"})
    assert (status, reason.startswith("the update has no params")) == (500, True)
    assert (await server.post("/start_weight_update"))[0] == 200


async def test_adapters_come_merged(server):
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
    adapted = peft.get_peft_model(copy.deepcopy(server.model), config)
    for name, param in adapted.named_parameters():
        if "lora_B" in name:
            param.data.normal_(std=0.1)
    target = publisher(server, model=adapted)
    await target.publish(adapted.named_parameters(), 1)
    merged = adapted.merge_and_unload()
    for name, param in server.served.model.named_parameters():
        assert torch.allclose(param, merged.get_parameter(name), atol=1e-6)


async def test_a_publisher_of_adapters_is_told_to_merge_them(server, tmp_path):
    config = peft.LoraConfig(r=4, target_modules="all-linear")
    adapted = peft.get_peft_model(copy.deepcopy(server.model), config)
    target = LoRAPublisher(server.url, tmp_path, config)
    with pytest.raises(PublishError, match="publish them merged"):
        await target.publish(adapted.named_parameters(), 1)


async def test_the_params_can_be_given_another_name(server):
    await server.post("/update_weight_version", {"new_version": "9"})
    assert (await server.get("/weight_info"))[1] == {"weight_version": "9"}
