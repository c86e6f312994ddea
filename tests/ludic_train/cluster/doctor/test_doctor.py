"""A server that is well, and servers with one thing wrong each."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import torch
from fake_vllm.sampler import SamplingVLLM

from ludic_gym.commands.main import main
from ludic_gym.errors import ClientError
from ludic_train.cluster.doctor.examine import examine
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

SHAPE = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A tiny model, its tokenizer, and the folder that it is served from."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer(["What is 12 + 30?"])
    model = make_tiny_model(tokenizer, **SHAPE).eval()
    save_model(model, tokenizer, folder)
    return model, tokenizer, folder


@asynccontextmanager
async def patient(served, **wrong):
    server = SamplingVLLM(*served[:2])
    for name, value in wrong.items():
        setattr(server, name, value)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def examination(served, server, *, push=True):
    found = await examine(server.url, str(served[2]), dtype="float32", push=push)
    return {finding.check: finding for finding in found}


async def findings(served, *, push=False, **wrong):
    async with patient(served, **wrong) as server:
        return await examination(served, server, push=push)


def bad(found):
    return {name for name, finding in found.items() if finding.verdict == "bad"}


@pytest.mark.long
async def test_a_server_that_is_well(served):
    async with patient(served) as server:
        before = {name: value.clone() for name, value in server.params.items()}
        found = await examine(f"{server.url}/v1", str(served[2]), dtype="float32", push=True)
        assert {finding.verdict for finding in found} == {"good"}
        assert [finding.check for finding in found] == [
            "flags",
            "chat",
            "tokens",
            "log-probs at T=1",
            "log-probs at T=0.7",
            "log-probs, top_p=0.9",
            "push",
            "prefix cache",
        ]
        # It has its own params back.
        assert all(torch.equal(server.params[name], value) for name, value in before.items())
        assert not server.paused


async def test_log_probs_before_temperature_are_found_and_the_flag_is_named(served):
    found = await findings(served, raw=True)
    assert bad(found) == {"log-probs at T=0.7", "log-probs, top_p=0.9"}
    assert "--logprobs-mode processed_logprobs" in found["log-probs at T=0.7"].found


@pytest.mark.long
async def test_other_params_than_those_of_the_model_are_found(served):
    other = make_tiny_model(served[1], seed=1, **SHAPE)
    params = {name: param.detach() for name, param in other.named_parameters()}
    assert "log-probs at T=1" in bad(await findings(served, params=params))


@pytest.mark.long
async def test_a_push_that_changes_nothing_is_found(served):
    found = await findings(served, push=True, deaf=True)
    assert bad(found) == {"push", "prefix cache"}


@pytest.mark.long
async def test_another_chat_template_is_found(served):
    found = await findings(served, template="!")
    assert bad(found) == {"tokens"}
    assert "serve the folder" in found["tokens"].remedy


@pytest.mark.long
async def test_a_server_that_tells_nothing_of_itself_is_asked_for_its_dev_mode(served):
    found = await findings(served, push=True, config=None)
    assert bad(found) == {"flags"}
    assert "VLLM_SERVER_DEV_MODE=1" in found["flags"].remedy
    assert found["push"].verdict == "skipped"


@pytest.mark.long
async def test_flags_that_are_missing_are_named(served):
    config = {
        "model_config": {
            "logprobs_mode": "raw_logprobs",
            "generation_config": "auto",
            "dtype": "torch.float32",
        }
    }
    remedy = (await findings(served, config=config))["flags"].remedy
    for flag in ("--logprobs-mode", "--generation-config vllm", "--weight-transfer-config"):
        assert flag in remedy


@pytest.mark.long
async def test_an_update_that_fails_is_a_finding_and_no_crash(served):
    async with patient(served) as server:
        server.faults["/start_weight_update"] = "500"
        found = await examination(served, server)
    assert bad(found) == {"push", "prefix cache"}
    assert "failed in start: " in found["push"].found


async def test_no_server_no_examination(served):
    with pytest.raises(ClientError, match=r"127\.0\.0\.1:1"):
        await examine("http://127.0.0.1:1", str(served[2]), dtype="float32", push=True)


@pytest.mark.long
async def test_the_command_prints_a_table_and_its_code_says_whether_all_is_well(served, capsys):
    async with patient(served, raw=True) as server:
        words = ["doctor", "--url", server.url, "--model", str(served[2]), "--no-push"]
        assert await asyncio.to_thread(main, words) == 1
        server.raw = False
        assert await asyncio.to_thread(main, words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("log-probs at T=0.7" in line for line in lines) == 2
    assert sum("bad" in line for line in lines) == 2
