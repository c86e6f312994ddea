"""Params by vLLM's own engines: which servers, in which order, and what is left to vLLM."""

from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest
import torch
from fake_vllm import transfer
from fake_vllm.fleet import digest, running
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.vllm_transfer import ServerPublisher, VLLMTransferPublisher
from ludic_train.errors import PublishError

LIMIT_S = 10


@pytest.fixture
def vllm(monkeypatch):
    transfer.install(monkeypatch)


def model():
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))


def params(model):
    return {name: param.detach() for name, param in model.named_parameters()}


@asynccontextmanager
async def servers(*sizes):
    """One server per size, which is its number of workers."""
    async with AsyncExitStack() as stack:
        found = []
        for size in sizes:
            server = transfer.TransferVLLM(params(model()))
            server.answers["/get_world_size"] = {"world_size": size}
            await server.start()
            stack.push_async_callback(server.stop)
            found.append(server)
        yield found


class Client:
    policy_version = urls = None

    def use(self, urls):
        self.urls = list(urls)


@pytest.mark.parametrize("backend", ["nccl", "ipc"])
async def test_all_servers_get_each_version_while_they_are_paused(vllm, backend):
    client = Client()
    async with servers(2, 3) as (one, other):
        trained = model()
        urls = [one.url, other.url]
        target = VLLMTransferPublisher(urls, trained, backend, clients=[client], limit_s=LIMIT_S)
        for version in range(2):
            with torch.no_grad():
                trained[0].weight.add_(1)
            await target.publish(iter(trained.named_parameters()), version)
            for server in (one, other):
                assert (server.version, server.paused) == (str(version), False)
                assert digest(server.params) == digest(params(trained))
        for server in (one, other):
            assert server.calls.count("/init_weight_transfer_engine") == 1
        assert (client.policy_version, client.urls) == (1, urls)
        if backend == "nccl":
            # The trainer is rank 0, the two workers of the first server are 1 and 2.
            assert [s.joined["rank_offset"] for s in (one, other)] == [1, 3]
            assert {s.joined["world_size"] for s in (one, other)} == {6}


async def test_a_server_that_fails_while_it_loads_stays_paused_and_is_named(vllm):
    async with servers(1) as (server,):
        trained = model()
        target = VLLMTransferPublisher(server.url, trained, limit_s=LIMIT_S)
        server.faults["/update_weights"] = "500"
        with pytest.raises(PublishError, match="vLLM's nccl failed in update"):
            await target.publish(trained.named_parameters(), 1)
        assert server.paused
        server.faults.clear()
        server.open = False
        await target.publish(trained.named_parameters(), 2)
        assert (server.version, server.paused) == ("2", False)


async def test_servers_that_cannot_be_paused_go_on_with_their_version(vllm):
    async with servers(1, 1) as (one, other):
        trained = model()
        target = VLLMTransferPublisher([one.url, other.url], trained, limit_s=LIMIT_S)
        other.faults["/pause"] = "500"
        with pytest.raises(PublishError, match=f"{other.url}.*failed in pause"):
            await target.publish(trained.named_parameters(), 1)
        assert (one.version, one.paused) == ("default", False)


def test_without_vllm_or_with_another_backend_it_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="needs vLLM in the trainer's environment"):
        VLLMTransferPublisher("http://localhost:1", model())
    with pytest.raises(ConfigError, match="is none of nccl, ipc"):
        VLLMTransferPublisher("http://localhost:1", model(), "sparse_nccl")


async def test_servers_that_take_files_get_files(capsys):
    trained = model()
    async with running(1, params(trained)) as (server,):
        await ServerPublisher(server.url, model=trained).publish(trained.named_parameters(), 1)
        assert server.version == "1"
    assert capsys.readouterr().out == "params go to the servers by files\n"


async def test_servers_of_another_engine_are_refused_where_vllm_or_a_card_is_missing(vllm):
    trained = model()
    async with servers(1) as (server,):
        config = {"weight_transfer_config": {"backend": "nccl"}}
        server.answers["/server_info"] = {"vllm_config": config}
        with pytest.raises(PublishError, match=r"vLLM's 'nccl'.*--transfer files"):
            await ServerPublisher(server.url, model=trained).publish(trained.named_parameters(), 1)


async def test_servers_of_vllms_engine_get_it_from_a_card(vllm, capsys):
    trained = model()
    on_card = SimpleNamespace(is_cuda=True, device=torch.device("cpu"))
    async with servers(1) as (server,):
        config = {"weight_transfer_config": {"backend": "nccl"}}
        server.answers["/server_info"] = {"vllm_config": config}
        target = ServerPublisher(server.url, model=trained)
        trained.parameters = lambda: iter([on_card])
        await target.publish(trained.named_parameters(), 1)
        assert (server.version, digest(server.params)) == ("1", digest(params(trained)))
    assert capsys.readouterr().out == "params go to the servers by vLLM's own nccl\n"
