"""Pauses of the local server, and swaps of its params between two tokens."""

import asyncio
import time

import pytest
import torch
from local_pushes import (
    GENERATE,
    REQUEST,
    asked,
    assert_has,
    client_of,
    kept,
    publisher,
    staged,
)

from ludic_gym.errors import ClientError
from ludic_gym.types import Sampling

# Of this seed comes no end of turn before the limit.
LONG = Sampling(max_tokens=200, temperature=1.0, seed=0)


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


async def test_a_swap_comes_between_two_tokens_of_what_is_in_flight(server, tmp_path):
    history = {0: kept(server.model)}
    server.change(1)
    history[1] = kept(server.model)
    await server.post("/start_weight_update")
    assert await staged(server, tmp_path) == 200
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
    server.served.model.model.embed_tokens.register_forward_pre_hook(lambda *_: time.sleep(0.002))
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
