"""Publishing through folders of checkpoints."""

import pytest
import torch
from fake_vllm.fleet import digest, running
from safetensors.torch import load_file

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.reload import ReloadPublisher
from ludic_train.errors import PublishError


def params(version):
    return {"a": torch.full((2,), float(version)), "b": torch.full((3,), float(version))}


async def published(target, version):
    await target.publish(iter(params(version).items()), version)


async def test_servers_load_a_fresh_folder_for_every_version_and_the_newest_two_stay(tmp_path):
    async with running(2, params(0)) as servers:
        target = ReloadPublisher([server.url for server in servers], tmp_path)
        for version in (1, 2, 3):
            await published(target, version)
            for server in servers:
                assert (server.version, digest(server.params)) == (
                    str(version),
                    digest(params(version)),
                )
                assert not server.paused
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v000002", "v000003"]
    assert load_file(tmp_path / "v000003" / "model.safetensors")["a"].tolist() == [3.0, 3.0]


async def test_on_a_cpu_the_tied_head_is_repaired_after_every_load(tmp_path):
    async with running(1, params(0)) as (server,):
        await published(ReloadPublisher(server.url, tmp_path), 1)
    assert server.calls.count("/collective_rpc") == 2
    assert server.calls[1] == "/pause"
    assert server.calls[-2:] == ["/update_weight_version", "/resume"]


async def test_a_server_that_failed_while_it_loaded_stays_paused(tmp_path):
    async with running(2, params(0)) as (good, bad):
        target = ReloadPublisher([good.url, bad.url], tmp_path)
        bad.faults["/collective_rpc"] = "500"
        with pytest.raises(PublishError, match=f"{bad.url}.*failed in update"):
            await published(target, 1)
        assert bad.paused
        assert not good.paused


async def test_a_version_is_never_written_over(tmp_path):
    async with running(1, params(0)) as (server,):
        await published(ReloadPublisher(server.url, tmp_path), 1)
        with pytest.raises(ConfigError, match="v000001 exists already"):
            await published(ReloadPublisher(server.url, tmp_path), 1)
