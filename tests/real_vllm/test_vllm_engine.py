"""Samples and pushes of a real vLLM, compared with the trainer's own model."""

import asyncio

import aiohttp
import peft
import pytest
import torch

from ludic_gym.clients.vllm import VLLMChatClient, VLLMTokenClient
from ludic_gym.concurrency import cancel_all
from ludic_gym.errors import ConfigError
from ludic_gym.policies.chat import ChatPolicy, ThinkingBudget
from ludic_gym.types import Sampling
from ludic_train.cluster.doctor.checks import expected_logprobs
from ludic_train.cluster.publish.control import ControlClient
from ludic_train.cluster.publish.files import FilesPublisher, write_params
from ludic_train.cluster.publish.lora import LoRAPublisher
from ludic_train.errors import PublishError

pytestmark = pytest.mark.vllm
CLOSE = 1e-4
# Of several lengths.
PROMPTS = [[(7 * i + 3 * j) % 250 for j in range(5 + 4 * i)] for i in range(6)]
# vLLM's blocks on a CPU have 128 tokens: this prompt fills one, which the prefix cache keeps.
LONG = [(11 * j + j * j) % 250 for j in range(200)]
# With seeds, requests that meet in one batch stop vLLM 0.32 on a CPU.
SAMPLED = Sampling(max_tokens=16)
GREEDY = Sampling(max_tokens=8, temperature=0)


@pytest.fixture
async def client(engine):
    # Whatever a random model says, it goes on to the end.
    body = {"sampling_params": {"ignore_eos": True}}
    async with VLLMTokenClient(engine.url, engine.render, extra_body=body, seeds=False) as client:
        yield client


async def all_of(client, prompts, sampling):
    return await asyncio.gather(*(client.continued(prompt, sampling) for prompt in prompts))


async def assert_served(engine, client, version):
    """Everything that is sampled comes from the trainer's params, under the version's name."""
    prompts = [*PROMPTS, LONG]
    for completion in await all_of(client, prompts, SAMPLED):
        expected = engine.logprobs(completion.prompt_ids, completion.completion_ids)
        assert (torch.tensor(completion.logprobs) - expected).abs().max() < CLOSE
        assert completion.versions == (version,) * len(completion.completion_ids)
    for completion in await all_of(client, prompts, GREEDY):
        ids = completion.completion_ids
        assert ids == engine.greedy(completion.prompt_ids, len(ids))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_log_probs_are_those_of_the_trainer(engine, client, temperature):
    sampling = Sampling(temperature=temperature, max_tokens=32)
    for completion in await all_of(client, PROMPTS, sampling):
        ids = completion.completion_ids
        expected = engine.logprobs(completion.prompt_ids, ids, temperature)
        assert (torch.tensor(completion.logprobs) - expected).abs().max() < CLOSE


@pytest.mark.parametrize(
    "cut",
    [
        {"top_p": 0.5},
        {"top_k": 3},
        {"min_p": 0.6},
        {"min_p": 0.1, "top_k": 12, "top_p": 0.6, "temperature": 0.7},
    ],
)
async def test_min_p_top_k_and_top_p_leave_the_tokens_that_they_leave_here(engine, client, cut):
    for completion in await all_of(client, PROMPTS, Sampling(max_tokens=32, **cut)):
        # -inf where vLLM drew a token that is left out here.
        expected = expected_logprobs(engine.model, completion)
        assert (torch.tensor(completion.logprobs) - expected).abs().max() < CLOSE


async def test_a_vllm_without_sampling_masks_is_refused(client):
    with pytest.raises(ConfigError, match="does not return the tokens"):
        await client.require_sampling_masks()


async def test_a_chat_is_rendered_as_the_trainer_does(engine, client):
    ask = [{"role": "user", "content": "What is 12 + 30?"}]
    async with VLLMChatClient(engine.url, extra_body={"ignore_eos": True}) as chat:
        said = await chat.complete(ask, GREEDY)
    continued = await client.complete(ask, GREEDY)
    assert said.prompt_ids == continued.prompt_ids
    assert said.completion_ids == continued.completion_ids
    assert said.text == continued.text


async def test_after_each_of_20_pushes_the_server_has_the_trainers_params(engine, client):
    publisher = FilesPublisher(engine.url, clients=[client], model=engine.model)
    for version in range(20):
        engine.change(version)
        await publisher.publish(engine.model.named_parameters(), version)
        await assert_served(engine, client, version)


async def test_params_are_put_in_also_after_a_reload(engine, client, tmp_path):
    # vLLM's own, which leaves something in the formats of params.
    await write_params(tmp_path, engine.model.named_parameters())
    server = ControlClient(engine.url)
    reload = {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path)}}
    await server.pause()
    await server.post("/collective_rpc", reload)
    await server.resume()
    await server.aclose()
    publisher = FilesPublisher(engine.url, model=engine.model, clients=[client])
    for version in (500, 501):
        engine.change(version)
        await publisher.publish(engine.model.named_parameters(), version)
        await assert_served(engine, client, version)


async def tokens_generated(engine):
    """Number of tokens that the server has sampled since it was started."""
    async with aiohttp.ClientSession() as session, session.get(f"{engine.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith("vllm:generation_tokens_total")
    )


def copied_params(engine):
    return {n: p.detach().clone() for n, p in engine.model.named_parameters()}


async def sampled_during_a_push(engine, client, version):
    """Completions of 32 requests that sample when a push of other params begins."""
    prompts = [[i + 1, *PROMPTS[i % 6]] for i in range(32)]
    already = await tokens_generated(engine)
    sampling = Sampling(max_tokens=300)
    asked = asyncio.gather(*(client.continued(prompt, sampling) for prompt in prompts))
    while await tokens_generated(engine) < already + 32 * 5:
        await asyncio.sleep(0.01)
    engine.change(version)
    publisher = FilesPublisher(engine.url, clients=[client])
    await publisher.publish(engine.model.named_parameters(), version)
    return await asked


async def test_32_requests_in_flight_outlive_a_push_and_every_token_knows_its_version(
    engine, client
):
    publisher = FilesPublisher(engine.url, clients=[client])
    await publisher.publish(engine.model.named_parameters(), 100)
    # Where this process gets little of a busy machine, all can end before the push.
    for new in range(101, 111):
        before = copied_params(engine)
        completions = await sampled_during_a_push(engine, client, new)
        assert len(completions) == 32
        if changed := [c for c in completions if set(c.versions) == {new - 1, new}]:
            break
    assert changed
    for params, version in ((before, new - 1), (copied_params(engine), new)):
        with torch.no_grad():
            for name, param in engine.model.named_parameters():
                param.copy_(params[name])
        for completion in changed:
            where = torch.tensor(completion.versions) == version
            expected = engine.logprobs(completion.prompt_ids, completion.completion_ids)
            got = torch.tensor(completion.logprobs)
            assert (got - expected)[where].abs().max() < CLOSE
    assert all(c.policy_version == new - 1 for c in changed)


@pytest.mark.slow
async def test_log_probs_are_the_trainers_after_each_of_50_pushes_under_load(engine, client):
    publisher = FilesPublisher(engine.url, clients=[client])
    await publisher.publish(engine.model.named_parameters(), 1000)

    async def load(number):
        while True:
            await client.continued([number + 1, *LONG], Sampling(max_tokens=100))

    loading = [asyncio.create_task(load(number)) for number in range(16)]
    for version in range(1001, 1051):
        engine.change(version)
        await publisher.publish(engine.model.named_parameters(), version)
        for completion in await all_of(client, PROMPTS, SAMPLED):
            expected = engine.logprobs(completion.prompt_ids, completion.completion_ids)
            assert (torch.tensor(completion.logprobs) - expected).abs().max() < CLOSE
            assert completion.policy_version == version
    assert not any(task.done() for task in loading)
    await cancel_all(loading)


async def test_a_push_that_ends_between_its_staging_and_its_swap_leaves_the_old_version(
    engine, client, tmp_path
):
    publisher = FilesPublisher(engine.url, clients=[client])
    await publisher.publish(engine.model.named_parameters(), 300)
    before = copied_params(engine)
    engine.change(12)
    await write_params(tmp_path, engine.model.named_parameters())
    server = ControlClient(engine.url)
    await server.start()
    await server.update({"folder": str(tmp_path)})
    await server.aclose()
    # Here the trainer is gone.
    after = copied_params(engine)
    engine.model.load_state_dict(before, strict=False)
    await assert_served(engine, client, 300)
    engine.model.load_state_dict(after, strict=False)
    await publisher.take_over()
    await publisher.publish(engine.model.named_parameters(), 302)
    await assert_served(engine, client, 302)


async def test_nan_and_torn_files_change_nothing(engine, client, tmp_path):
    publisher = FilesPublisher(engine.url, clients=[client])
    await publisher.publish(engine.model.named_parameters(), 400)
    broken = dict(engine.model.named_parameters())
    broken["model.norm.weight"] = torch.full((64,), float("nan"))
    with pytest.raises(PublishError, match="has 64 of 64 values that are NaN"):
        await publisher.publish(broken.items(), 401)
    await write_params(tmp_path, engine.model.named_parameters())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-8])
    server = ControlClient(engine.url)
    await server.start()
    with pytest.raises(PublishError, match="cannot be read"):
        await server.update({"folder": str(tmp_path)})
    await server.aclose()
    await assert_served(engine, client, 400)
    await publisher.publish(engine.model.named_parameters(), 403)
    await assert_served(engine, client, 403)


async def test_an_update_that_does_not_fit_changes_nothing(engine, client):
    publisher = FilesPublisher(engine.url, clients=[client])
    await publisher.publish(engine.model.named_parameters(), 200)
    wrong = {**dict(engine.model.named_parameters()), "model.norm.weight": torch.zeros(3)}
    with pytest.raises(PublishError, match=r"failed in update: .*model.norm.weight \[3\]"):
        await publisher.publish(wrong.items(), 201)
    short = {**dict(engine.model.named_parameters()), "model.norm.weight": torch.zeros(64).int()}
    with pytest.raises(PublishError, match=r"failed in update: .*model.norm.weight \[64\] int32"):
        await publisher.publish(short.items(), 201)
    some = [(n, p) for n, p in engine.model.named_parameters() if n != "model.norm.weight"]
    with pytest.raises(PublishError, match=r"failed in update: .*lacks model.norm.weight"):
        await publisher.publish(some, 202)
    await assert_served(engine, client, 200)
    engine.change(11)
    await publisher.publish(engine.model.named_parameters(), 203)
    await assert_served(engine, client, 203)


async def test_adapters_come_merged(engine, client):
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"])
    adapted = peft.get_peft_model(engine.model, lora)
    publisher = FilesPublisher(engine.url, clients=[client], model=adapted)
    # The fixture computes log-probs with the model, whose layers now have adapters.
    try:
        for version in (600, 601):
            with torch.no_grad():
                for name, param in adapted.named_parameters():
                    if "lora_" in name:
                        param.copy_(torch.randn(param.shape) * 0.05)
            await publisher.publish(adapted.named_parameters(), version)
            await assert_served(engine, client, version)
    finally:
        adapted.unload()
    # The trainer's model has no adapters any more, for the tests that follow.
    await FilesPublisher(engine.url, clients=[client]).publish(engine.model.named_parameters(), 602)
    await assert_served(engine, client, 602)


async def test_100_adapters_leave_the_base_model_as_it_was(engine, client, tmp_path):
    base = await client.model()
    async with VLLMTokenClient(engine.url, engine.render, base) as unchanged:
        first = [(await unchanged.continued(p, GREEDY)) for p in PROMPTS]
        adapted = peft.get_peft_model(
            engine.model, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear")
        )
        publisher = LoRAPublisher(engine.url, tmp_path, adapted, clients=[client])
        try:
            for version in range(100):
                with torch.no_grad():
                    for name, param in adapted.named_parameters():
                        if "lora_" in name:
                            param.copy_(torch.randn(param.shape) * 0.05)
                await publisher.publish(adapted.named_parameters(), version)
                if version % 50 == 0:
                    for completion in await all_of(client, PROMPTS, SAMPLED):
                        ids = completion.completion_ids
                        expected = engine.logprobs(completion.prompt_ids, ids)
                        assert (torch.tensor(completion.logprobs) - expected).abs().max() < CLOSE
                        assert completion.policy_version == version
        finally:
            adapted.unload()
        last = [(await unchanged.continued(p, GREEDY)) for p in PROMPTS]
    assert [(c.completion_ids, c.logprobs) for c in first] == [
        (c.completion_ids, c.logprobs) for c in last
    ]
    async with aiohttp.ClientSession() as session, session.get(f"{engine.url}/v1/models") as answer:
        names = [model["id"] for model in (await answer.json())["data"]]
    assert names[1:] == ["policy-v98", "policy-v99"]


async def test_a_thought_that_is_cut_off_goes_on_with_exact_tokens(engine, client):
    policy = ThinkingBudget(ChatPolicy(client), max_think_tokens=6)
    policy.reset("")
    policy.observe("What is 12 + 30?")
    first, second = (await policy.act(Sampling(max_tokens=16))).completions

    closing = tuple(engine.tokenizer.encode("\n</think>\n\n", add_special_tokens=False))
    assert len(first.completion_ids) == 6
    assert second.prompt_ids == first.prompt_ids + first.completion_ids + closing
    for completion in (first, second):
        expected = engine.logprobs(completion.prompt_ids, completion.completion_ids)
        assert (torch.tensor(completion.logprobs) - expected).abs().max() < CLOSE
