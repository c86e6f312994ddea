"""Params come to the local server whole or not at all, while it samples."""

import asyncio
import copy
import subprocess
import time

import forked
import peft
import pytest
import torch

from ludic_gym.clients.vllm_tokens import VLLMTokenClient
from ludic_gym.errors import ClientError
from ludic_gym.types import Sampling
from ludic_train.errors import PublishError
from ludic_train.publishers.control import PhaseLimits
from ludic_train.publishers.lora import LoRAPublisher
from ludic_train.publishers.reload import ReloadPublisher
from ludic_train.publishers.tcp import TcpWire
from ludic_train.publishers.transports import FileWire
from ludic_train.publishers.vllm import VLLMPublisher
from ludic_vllm.receiver import Trainer
from ludic_vllm.relay import Arriving
from ludic_vllm.wire import packed

CHUNK = 60_000
LIMITS = PhaseLimits(connect=30, pause=30, start=30, update=30, finish=30, resume=30)
GENERATE = "/inference/v1/generate"
# Of this seed comes no end of turn before the limit.
LONG = Sampling(max_tokens=200, temperature=1.0, seed=0)
REQUEST = {
    "token_ids": [5, 6],
    "sampling_params": {"max_tokens": 200, "seed": 0, "logprobs": 0},
}
NOBODY = {"transport": "tcp", "trainer": ["127.0.0.1", 9], "secret": "ab", "timeout_s": 0.5}
both_heads = pytest.mark.parametrize("model", [True, False], indirect=True, ids=["tied", "untied"])


def client_of(server):
    return VLLMTokenClient(server.url, server.render)


def publisher(*servers, wire=None, **kwargs):
    urls = [server.url for server in servers]
    return VLLMPublisher(urls, wire or FileWire(), chunk_bytes=CHUNK, limits=LIMITS, **kwargs)


def kept(model):
    return {name: param.detach().clone() for name, param in model.named_parameters()}


def assert_has(server, params, version):
    """The server computes with these params, and calls them so."""
    assert server.served.version == version
    for name, param in server.served.model.named_parameters():
        assert torch.equal(param, params[name]), name


@both_heads
@pytest.mark.parametrize("wire", [TcpWire, FileWire])
async def test_each_push_brings_the_trainers_params(server, wire):
    async with client_of(server) as client:
        target = publisher(server, wire=wire(), clients=[client])
        for version in range(3):
            server.change(version)
            await target.publish(server.model.named_parameters(), version)
            assert_has(server, kept(server.model), str(version))
            completion = await client.continued([5, 6, 7], Sampling(max_tokens=12))
            expected = server.logprobs([5, 6, 7], completion.completion_ids)
            assert completion.logprobs == pytest.approx(expected.tolist(), abs=1e-5)
            assert completion.versions == (version,) * len(completion.completion_ids)
        assert target.fleet.replicas[0].describe().endswith("version 2: ready")


async def test_all_servers_of_a_fleet_get_the_same(servers):
    target = publisher(*servers, wire=TcpWire())
    servers[0].change(1)
    await target.publish(servers[0].model.named_parameters(), 1)
    for server in servers:
        assert_has(server, kept(servers[0].model), "1")


@pytest.mark.long
@pytest.mark.parametrize(
    ("wire", "last"), [(TcpWire, 10), pytest.param(FileWire, 4, marks=pytest.mark.slow)]
)
async def test_with_64_requests_and_many_pushes_every_completion_is_of_the_version_it_names(
    server, wire, last
):
    history, done = {}, []
    async with client_of(server) as client:
        target = publisher(server, wire=wire(), clients=[client])

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


@pytest.mark.parametrize("wire", [TcpWire, FileWire])
@pytest.mark.parametrize("what", WRONG)
async def test_params_that_do_not_fit_change_nothing(server, wire, what):
    name, tensor, reason = WRONG[what]
    before, target = kept(server.model), publisher(server, wire=wire())
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
from ludic_train.models.load import load_model
from ludic_train.publishers.tcp import TcpWire
from ludic_train.publishers.vllm import VLLMPublisher

def slowly(params):
    for i, param in enumerate(params):
        if i == 5:
            print("half", flush=True)
            time.sleep(600)
        yield param

model, _ = load_model(sys.argv[2])
publisher = VLLMPublisher(sys.argv[1], TcpWire(), chunk_bytes=1000)
asyncio.run(publisher.publish(slowly(model.named_parameters()), 1))
"""


async def test_after_a_trainer_was_killed_the_next_one_takes_over(server, tokenizer, tmp_path):
    from ludic_train.models.load import save_model

    save_model(server.model, tokenizer, tmp_path)
    before = kept(server.model)
    words = ["-c", TRAINER, server.url, str(tmp_path)]
    with forked.Python(words, stdout=subprocess.PIPE) as trainer:
        assert await asyncio.to_thread(trainer.stdout.readline) == "half\n"
        trainer.kill()

    assert_has(server, before, "default")
    server.change(1)
    target = publisher(server, wire=TcpWire())
    with pytest.raises(PublishError, match=r"call take_over\(\)"):
        await target.publish(server.model.named_parameters(), 2)
    await target.take_over()
    await target.publish(server.model.named_parameters(), 3)
    assert_has(server, kept(server.model), "3")
    assert not server.served.gate.is_paused


async def test_a_push_that_ends_between_its_staging_and_its_swap_leaves_the_old_version(server):
    before, wire = kept(server.model), FileWire()
    server.change(1)
    async with client_of(server) as client:
        await server.post("/start_weight_update")
        announced = announced_by(wire, whole(server.model, wire))
        for info in (announced, {"last": True}):
            assert (await server.post("/update_weights", {"update_info": info}))[0] == 200
        wire.release(swapped=False)
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


async def test_params_that_changed_on_the_way_are_refused(server):
    before, wire = kept(server.model), FileWire()
    server.change(1)
    await server.post("/start_weight_update")
    chunk = whole(server.model, wire)
    announced = announced_by(wire, chunk)
    # After the checksum was computed.
    chunk.buffer[0] += 1
    status, reason = await server.refusal("/update_weights", {"update_info": announced})
    assert (status, "did not arrive as they were sent" in reason) == (500, True)
    assert_has(server, before, "default")
    wire.release(swapped=True)
    await publisher(server).publish(server.model.named_parameters(), 2)
    assert_has(server, kept(server.model), "2")


async def test_a_trainer_that_hangs_up_while_it_sends_leaves_the_params(server):
    before, secret = kept(server.model), b"known"
    trainer = Trainer(secret)
    address = ("127.0.0.1", trainer.listen("127.0.0.1"))
    info = {"transport": "tcp", "trainer": address, "secret": secret.hex(), "timeout_s": 20}
    assert (await server.post("/init_weight_transfer_engine", {"init_info": info}))[0] == 200
    await server.post("/start_weight_update")
    # 256 bytes, of which the trainer has 100.
    trainer.offer(("s", 0), Arriving(torch.zeros(256, dtype=torch.uint8), 100))
    names = {"names": ["model.norm.weight"], "dtype_names": ["float32"], "shapes": [[64]]}
    announced = {"update_info": {**names, "session": "s", "index": 0, "sources": [[address]]}}
    update = asyncio.create_task(server.refusal("/update_weights", announced))
    await asyncio.sleep(0.3)
    assert not update.done()
    trainer.close()
    assert "closed before the end" in (await update)[1]

    assert_has(server, before, "default")
    assert (await server.post("/start_weight_update"))[0] == 200
    server.served.receiver.close()
    status, reason = await server.refusal("/update_weights", announced)
    assert (status, "no trainer is connected" in reason) == (500, True)


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/update_weights", {"update_info": {}}, "no weight update is open"),
        ("/finish_weight_update", None, "no weight update is open"),
        ("/init_weight_transfer_engine", {"init_info": NOBODY}, "ConnectionRefusedError"),
    ],
)
async def test_steps_out_of_order_are_refused(server, path, body, reason):
    status, said = await server.refusal(path, body)
    assert status == 500
    assert reason in said


async def test_a_session_without_all_params_cannot_be_finished(server):
    await server.post("/start_weight_update")
    status, reason = await server.refusal("/finish_weight_update", {"weight_version": "1"})
    assert (status, reason.startswith("the update lacks model.embed_tokens.weight")) == (500, True)
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


async def test_a_checkpoint_on_disk_can_be_reloaded(server, tmp_path):
    server.change(1)
    target = ReloadPublisher(server.url, tmp_path)
    await target.publish(server.model.named_parameters(), 1)
    assert_has(server, kept(server.model), "1")


async def test_a_publisher_of_adapters_is_told_to_merge_them(server, tmp_path):
    config = peft.LoraConfig(r=4, target_modules="all-linear")
    adapted = peft.get_peft_model(copy.deepcopy(server.model), config)
    target = LoRAPublisher(server.url, tmp_path, config)
    with pytest.raises(PublishError, match="publish them merged"):
        await target.publish(adapted.named_parameters(), 1)


async def asked(server, count):
    """That many requests that are under way, for as long as 200 tokens of a slow model take."""
    server.served.model.lm_head.register_forward_pre_hook(lambda *_: time.sleep(0.002))
    tasks = [asyncio.create_task(server.post(GENERATE, REQUEST)) for _ in range(count)]
    while server.served.gate.running + server.served.gate.waiting < count:
        await asyncio.sleep(0)
    return tasks


async def test_a_pause_lets_requests_end_and_holds_new_ones_until_resume(server):
    early = await asked(server, 4)
    await server.post("/pause?mode=wait")
    assert server.served.gate.running == 0
    late = await asked(server, 3)
    assert (await server.get("/is_paused"))[1] == {"is_paused": True}
    assert server.served.gate.waiting == 3
    assert [(await task)[0] for task in early] == [200] * 4
    assert not any(task.done() for task in late)
    await server.post("/resume")
    assert [(await task)[0] for task in late] == [200] * 3
    assert (await server.get("/is_paused"))[1] == {"is_paused": False}


async def test_a_pause_that_keeps_requests_samples_no_token_until_resume(server):
    early = await asked(server, 4)
    while not server.served.client.num_sampled:
        await asyncio.sleep(0.001)
    await server.post("/pause?mode=keep")
    sampled = server.served.client.num_sampled
    late = await asked(server, 3)
    await asyncio.sleep(0.1)
    assert server.served.client.num_sampled == sampled < 4 * 200
    assert not any(task.done() for task in [*early, *late])
    await server.post("/resume")
    for task in [*early, *late]:
        status, answer = await task
        assert (status, len(answer["choices"][0]["token_ids"])) == (200, 200)


async def test_a_pause_that_aborts_ends_requests_and_clients_call_it_an_error(server):
    async with client_of(server) as client:
        asking = asyncio.create_task(client.continued([5, 6], LONG))
        (other,) = await asked(server, 1)
        while server.served.gate.running < 2:
            await asyncio.sleep(0)
        await server.post("/pause?mode=abort")
        with pytest.raises(ClientError, match="finish_reason is 'abort'"):
            await asking
    (choice,) = (await other)[1]["choices"]
    assert (choice["finish_reason"], choice["token_ids"]) == ("abort", [])


async def test_a_swap_comes_between_two_tokens_of_what_is_in_flight(server):
    history = {0: kept(server.model)}
    server.change(1)
    history[1] = kept(server.model)
    await server.post("/start_weight_update")
    wire = FileWire()
    announced = announced_by(wire, whole(server.model, wire))
    assert (await server.post("/update_weights", {"update_info": announced}))[0] == 200
    wire.release(swapped=False)
    early = await asked(server, 4)
    while server.served.client.num_sampled < 40:
        await asyncio.sleep(0.001)
    await server.post("/finish_weight_update", {"weight_version": "1"})
    assert_has(server, kept(server.model), "1")
    assert not any(task.done() for task in early)
    for task in early:
        (choice,) = (await task)[1]["choices"]
        old, new = choice["weight_versions"]
        assert (old["version"], new["version"]) == ("default", "1")
        assert 0 == old["start"] < old["end"] == new["start"]
        assert new["start"] < new["end"] == len(choice["token_ids"])
        got = torch.tensor([each["logprob"] for each in choice["logprobs"]["content"]])
        for span, params in zip((old, new), history.values(), strict=True):
            expected = server.logprobs([5, 6], choice["token_ids"], params)
            part = slice(span["start"], span["end"])
            assert (got - expected)[part].abs().max() < 1e-5
    assert not server.served.gate.is_paused


async def test_scores_of_a_completion_that_a_swap_overtakes_are_of_one_version(server):
    body = {**REQUEST, "sampling_params": {**REQUEST["sampling_params"], "logprobs": 2}}
    server.served.model.lm_head.register_forward_pre_hook(lambda *_: time.sleep(0.002))
    asking = asyncio.create_task(server.post(GENERATE, body))
    while server.served.client.num_sampled < 20:
        await asyncio.sleep(0.001)
    server.change(1)
    await publisher(server).publish(server.model.named_parameters(), 1)
    (choice,) = (await asking)[1]["choices"]
    ids = choice["token_ids"]
    assert [span["version"] for span in choice["weight_versions"]] == ["1"]
    expected = server.logprobs([5, 6], ids)
    got = torch.tensor([each["logprob"] for each in choice["logprobs"]["content"]])
    assert (got - expected).abs().max() < 1e-5


def announced_by(wire, chunk):
    """What the only server is told of a chunk."""
    return wire.announced(chunk, ["here"])["here"]


def whole(model, wire):
    """All params as one chunk."""
    params = model.named_parameters()
    (chunk,) = packed(params, chunk_bytes=2**30, allocate=wire.allocated)
    return chunk


async def test_the_params_can_be_given_another_name(server):
    await server.post("/update_weight_version", {"new_version": "9"})
    assert (await server.get("/weight_info"))[1] == {"weight_version": "9"}
