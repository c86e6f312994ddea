"""A model of the local engine over HTTP: equal samples, clear refusals, and pushes of params."""

import asyncio
import re
import subprocess
from dataclasses import replace
from io import BytesIO

import forked
import pytest
import torch
from local_server import GENERATE, serving, tokenizer

from ludic_gym.clients.vllm import VLLMChatClient
from ludic_gym.errors import ClientError, PromptTooLong
from ludic_gym.types import Sampling
from ludic_train.agents.gateway import BODY_BYTES
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.errors import PublishError
from ludic_train.models.load import save_model

ASK = [{"role": "user", "content": "What is 12 + 30?"}]
SAMPLINGS = [
    Sampling(seed=5, max_tokens=20),
    Sampling(seed=6, max_tokens=20, temperature=0.7),
    Sampling(seed=7, max_tokens=20, top_p=0.8, temperature=1.3),
    Sampling(seed=7, max_tokens=20, top_k=3, min_p=0.05),
    Sampling(seed=8, max_tokens=20, temperature=0),
    Sampling(seed=9, max_tokens=60, stop=("a", "1"), temperature=2.0),
]
CHAT = "/v1/chat/completions"


@pytest.fixture
async def server():
    async with serving() as server:
        yield server


def essence(completion):
    return replace(completion, policy_version=None, versions=None)


@pytest.mark.parametrize("kind", ["tokens", "chat"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
async def test_over_http_comes_bit_for_bit_what_comes_in_process(server, kind, sampling):
    begun = [*ASK, {"role": "assistant", "content": "The answer"}]
    chat = VLLMChatClient(server.url)
    async with server.tokens_client() if kind == "tokens" else chat as client:
        for dialog in (ASK, begun):
            expected = await server.client.complete(dialog, sampling)
            if kind == "chat":
                # As with vLLM, this route has no sampling masks.
                expected = replace(expected, sampling_mask=None)
            assert essence(await client.complete(dialog, sampling)) == essence(expected)


async def test_sampling_masks_have_vllms_format(server):
    params = {"max_tokens": 3, "logprobs": 0, "seed": 4, "top_k": 4}
    _, answer = await server.post(GENERATE, {"token_ids": [5, 6], "sampling_params": params})
    (choice,) = answer["choices"]
    assert [len(mask) for mask in choice["sampling_mask"]] == [4] * len(choice["token_ids"])
    for token, mask in zip(choice["token_ids"], choice["sampling_mask"], strict=True):
        assert token in mask == sorted(mask)
    greedy = Sampling(max_tokens=6, temperature=0)
    expected = await server.client.continued([5, 6], greedy)
    async with server.tokens_client(sampling_masks=True) as client:
        await client.require_sampling_masks()
        completion = await client.continued([5, 6], greedy)
    assert completion.completion_ids == expected.completion_ids
    assert set(completion.logprobs) == {0.0}


@pytest.mark.parametrize("path", [GENERATE, CHAT])
async def test_a_client_that_leaves_makes_room(server, path):
    params = {"max_tokens": 230, "temperature": 90.0}
    body = {"token_ids": [5], "messages": ASK, "sampling_params": params, **params}
    requests = [asyncio.create_task(server.post(path, body)) for _ in range(3)]
    while server.served.client.in_flight < 3:
        await asyncio.sleep(0.001)
    for request in requests:
        request.cancel()
    while server.served.client.in_flight:
        await asyncio.sleep(0.001)
    assert server.served.client.num_sampled < 3 * 230


async def test_load_and_tokens_are_counted(server):
    body = {"token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 4, "seed": 1}}
    _, answer = await server.post(GENERATE, body)
    tokens = len(answer["choices"][0]["token_ids"])
    async with server.session.get(server.url + "/metrics") as metrics:
        lines = (await metrics.text()).splitlines()
    assert f'vllm:generation_tokens_total{{model_name="m"}} {tokens}' in lines
    assert 'vllm:prompt_tokens_total{model_name="m"} 3' in lines
    assert 'vllm:num_requests_running{model_name="m"} 0' in lines


async def test_a_model_that_diverged_is_an_error_until_it_has_other_params(server):
    server.served.model.model.norm.weight.data.fill_(torch.nan)
    status, reason = await server.refusal(GENERATE, {"token_ids": [5]})
    assert (status, "its params have diverged" in reason) == (502, True)
    server.served.model.model.norm.weight.data.fill_(1.0)
    assert (await server.post(GENERATE, {"token_ids": [5]}))[0] == 200


async def test_clients_raise_what_the_server_refuses(server):
    async with server.tokens_client() as client:
        with pytest.raises(PromptTooLong):
            await client.continued([5] * 256, Sampling())
        # As vLLM has it: a completion ends where the positions do.
        full = await client.continued([5] * 250, Sampling(max_tokens=300))
        assert len(full.completion_ids) <= 6
    async with server.tokens_client(model="other") as client:
        with pytest.raises(ClientError, match="`other` does not exist"):
            await client.continued([5], Sampling())


USER = {"role": "user", "content": "a"}
READING = [GENERATE, CHAT, "/update_weights", "/collective_rpc"]


@pytest.fixture
async def alive(server):
    """The server, which afterwards still samples."""
    yield server
    status, answer = await server.post(GENERATE, {"token_ids": [5]})
    assert (status, len(answer["choices"])) == (200, 1)


@pytest.mark.parametrize(
    "body",
    [b"", b"no json", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000],
    ids=lambda body: f"{body[:8]!r}",
)
async def test_a_body_that_is_no_such_object_is_refused(alive, body):
    for path in READING:
        status, reason = await alive.refusal(path, body)
        assert status == 400, path
        assert len(reason) < 1000, path


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (GENERATE, {"token_ids": "5"}, "token_ids"),
        (GENERATE, {"token_ids": []}, "no tokens"),
        (GENERATE, {"token_ids": [1.5]}, "token_ids"),
        (GENERATE, {"token_ids": [-1]}, "-1"),
        (GENERATE, {"token_ids": [10**30]}, "10+|out of range"),
        (GENERATE, {"token_ids": [5] * 300}, "maximum context length"),
        # 256 positions of at most 256 characters each.
        (CHAT, {"messages": [{**USER, "content": "a" * 65_537}]}, "maximum context length"),
        (CHAT, {"messages": [USER], "n": 2}, "n=2 is not offered"),
        (CHAT, {"messages": [USER], "response_format": {"type": "json_object"}}, "not offered"),
        ("/pause?mode=abort", None, "mode='abort'"),
        ("/collective_rpc", {"method": "exec"}, "'exec'"),
        ("/finish_weight_update", {"weight_version": 3}, "weight_version"),
    ],
)
async def test_a_request_that_cannot_be_followed_names_its_fault(alive, path, body, reason):
    status, message = await alive.refusal(path, body)
    assert status == 400
    assert re.search(reason, message), message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1), ("temperature", "hot"), ("top_p", 0), ("top_p", 1.5),
        ("max_tokens", 0), ("max_tokens", True), ("stop", ""), ("stop", [1]), ("seed", 2**64),
        ("top_k", -2), ("top_k", 2**31), ("min_p", 1.5), ("repetition_penalty", 1.1),
        ("logit_bias", {"5": 1}), ("ignore_eos", True),
    ],
)  # fmt: skip
async def test_a_sampling_that_cannot_be_is_refused(alive, name, value):
    bodies = {
        GENERATE: {"token_ids": [5], "sampling_params": {name: value}},
        CHAT: {"messages": [USER], name: value},
    }
    for path, body in bodies.items():
        status, message = await alive.refusal(path, body)
        assert (status, name in message) == (400, True), message


async def test_large_cut_off_and_unknown_requests_cost_themselves_alone(alive):
    data = BytesIO(bytes(BODY_BYTES + 1))
    async with alive.session.post(alive.url + GENERATE, data=data) as answer:
        assert answer.status == 413
    host, port = alive.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /inference/v1/generate HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    for method, path, status in (("GET", "/nothing", 404), ("POST", "/weight_info", 405)):
        async with alive.session.request(method, alive.url + path) as answer:
            assert (answer.status, "error" in await answer.json()) == (status, True)


@pytest.mark.parametrize("tied", [True, False])
async def test_each_push_brings_the_trainers_params(tied):
    async with serving(tied=tied) as server, server.tokens_client() as client:
        publisher = server.publisher(clients=[client])
        for version in range(3):
            params = server.change(version)
            await publisher.publish(params.items(), version)
            server.assert_has(params, str(version))
            completion = await client.continued([5, 6, 7], Sampling(max_tokens=12))
            expected = server.logprobs([5, 6, 7], completion.completion_ids)
            assert completion.logprobs == pytest.approx(expected.tolist(), abs=1e-5)
            assert completion.versions == (version,) * len(completion.completion_ids)


@pytest.mark.parametrize(("dtype", "is_warned"), [("bfloat16", True), ("float32", False)])
async def test_a_server_that_computes_in_another_type_is_warned_of(
    server, caplog, dtype, is_warned
):
    publisher = FilesPublisher(server.url, model=server.model, dtype=dtype)
    await publisher.publish(server.model.named_parameters(), 1)
    assert ("computes in float32, and the trainer in bfloat16" in caplog.text) == is_warned
    server.assert_has(server.params(), "1")


@pytest.mark.long
async def test_with_64_requests_and_many_pushes_each_token_is_of_the_version_it_names(server):
    history, done, last = {}, [], 6
    async with server.tokens_client() as client:
        publisher = server.publisher(clients=[client])

        async def publish(version):
            history[version] = server.params()
            await publisher.publish(history[version].items(), version)

        async def ask(number):
            while not done or done[-1].policy_version < last:
                prompt = [number % 250, 3 + len(done) % 7]
                sampling = Sampling(max_tokens=1 + number % 40, temperature=1.2)
                done.append(await client.continued(prompt, sampling))

        await publish(0)
        requests = asyncio.gather(*map(ask, range(64)))
        for version in range(1, last + 1):
            while not done or done[-1].policy_version < version - 1:
                await asyncio.sleep(0.001)
            server.change(version)
            await publish(version)
        await requests
    assert {completion.policy_version for completion in done} == set(range(last + 1))
    # A push comes between two tokens of what is in flight.
    mixed = [completion for completion in done if len(set(completion.versions)) > 1]
    assert mixed
    for completion in [*mixed, *done[:: max(1, len(done) // 100)]]:
        assert completion.policy_version == min(completion.versions)
        assert sorted(completion.versions) == list(completion.versions)
        ids, versions = completion.completion_ids, torch.tensor(completion.versions)
        for version in set(completion.versions):
            expected = server.logprobs(completion.prompt_ids, ids, history[version], 1.2)
            difference = (torch.tensor(completion.logprobs) - expected)[versions == version]
            assert difference.abs().max() < 1e-5


@pytest.mark.parametrize("folder", ["/etc", "/nothing", "\0", ""])
async def test_a_folder_without_params_changes_nothing(alive, folder):
    await alive.post("/start_weight_update")
    status, _ = await alive.refusal("/update_weights", {"update_info": {"folder": folder}})
    assert (status, alive.served.version) == (500, "default")
    # The session is closed.
    assert (await alive.post("/start_weight_update"))[0] == 200


def torn(folder):
    (path,) = folder.glob("*")
    path.write_bytes(path.read_bytes()[:-8])


def removed(folder):
    for path in folder.glob("*"):
        path.unlink()


@pytest.mark.parametrize("change", [torn, removed])
async def test_files_that_are_not_whole_change_nothing(server, tmp_path, change):
    before = server.params()
    server.change(1)
    await server.post("/start_weight_update")
    assert await server.staged(tmp_path, change) == 500
    server.assert_has(before, "default")


TRAINER = """
import asyncio, sys
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


@pytest.mark.long
async def test_after_a_trainer_was_killed_the_next_one_takes_over(server, tmp_path):
    save_model(server.model, tokenizer(), tmp_path)
    before = server.params()
    words = ["-c", TRAINER, server.url, str(tmp_path)]
    with forked.Python(words, stdout=subprocess.PIPE) as trainer:
        assert await asyncio.to_thread(trainer.stdout.readline) == "half\n"
        trainer.kill()
    server.assert_has(before, "default")
    params, publisher = server.change(1), server.publisher()
    with pytest.raises(PublishError, match="take_over"):
        await publisher.publish(params.items(), 2)
    await publisher.take_over()
    await publisher.publish(params.items(), 3)
    server.assert_has(params, "3")
    assert not server.served.paused


async def test_a_pause_samples_no_token_until_resume(server):
    early = await server.begun(4)
    while not server.served.client.num_sampled:
        await asyncio.sleep(0.001)
    await server.post("/pause?mode=keep")
    sampled = server.served.client.num_sampled
    late = await server.begun(7)
    assert (await server.get("/is_paused"))[1] == {"is_paused": True}
    await asyncio.sleep(0.1)
    assert server.served.client.num_sampled == sampled < 4 * 200
    await server.post("/resume")
    for task in [*early, *late]:
        status, answer = await task
        assert (status, len(answer["choices"][0]["token_ids"])) == (200, 200)


@pytest.mark.parametrize("path", ["/update_weights", "/finish_weight_update"])
async def test_steps_out_of_order_are_refused(server, path):
    status, reason = await server.refusal(path, {"update_info": {}})
    assert (status, "no weight update is open" in reason) == (500, True)
    await server.post("/start_weight_update")
    # Without params.
    assert (await server.refusal("/finish_weight_update", {}))[0] == 500
