"""Params by vLLM's own engines: which servers, in which order, and what is left to vLLM."""

from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest
import torch
from fake_vllm import transfer
from fake_vllm.fleet import digest
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.files import FilesPublisher
from ludic_train.cluster.publish.vllm_transfer import VLLMTransferPublisher, server_backend
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
        other.faults.clear()
        await target.publish(trained.named_parameters(), 2)
        assert [server.version for server in (one, other)] == ["2", "2"]


def test_without_vllm_or_with_another_backend_it_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="needs vLLM in the trainer's environment"):
        VLLMTransferPublisher("http://localhost:1", model())
    with pytest.raises(ConfigError, match="is none of nccl, ipc"):
        VLLMTransferPublisher("http://localhost:1", model(), "sparse_nccl")


@pytest.mark.parametrize(
    ("backends", "on_card", "way"),
    [
        (["nccl", "nccl"], True, "nccl"),
        (["ipc"], True, "ipc"),
        (["nccl", "ludic"], True, None),
        (["sparse_nccl"], True, None),
        (["ludic"], True, None),
        (["nccl"], False, None),
    ],
)
async def test_the_way_follows_from_the_engine_of_all_servers_and_what_is_here(
    vllm, capsys, backends, on_card, way
):
    async with servers(*[1] * len(backends)) as started:
        for server, name in zip(started, backends, strict=True):
            config = {"weight_transfer_config": {"backend": name}}
            server.answers["/server_info"] = {"vllm_config": config}
        trained = model()
        trained.parameters = lambda: iter([SimpleNamespace(is_cuda=on_card)])
        assert await server_backend([server.url for server in started], trained) == way
    expected = f"vLLM's own {way}" if way else "files"
    assert capsys.readouterr().out == f"params go to the servers by {expected}\n"


async def test_a_server_of_another_engine_is_refused_by_files():
    trained = model()
    async with servers(1) as (server,):
        config = {"weight_transfer_config": {"backend": "nccl"}}
        server.answers["/server_info"] = {"vllm_config": config}
        with pytest.raises(PublishError, match=r"vLLM's 'nccl'.*--transfer files"):
            await FilesPublisher(server.url).publish(trained.named_parameters(), 1)
