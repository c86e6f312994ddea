"""Publishing adapters under a name per version."""

import json

import pytest
import torch
from fake_vllm.fleet import running
from peft import LoraConfig
from safetensors.torch import load_file

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.lora import LoRAPublisher
from ludic_train.errors import PublishError

CONFIG = LoraConfig(r=1, lora_alpha=2, target_modules=["q"])


class Client:
    """A client that still waits for the adapters in `waiting`."""

    policy_version = name = urls = None
    waiting = ()

    def use(self, urls):
        self.urls = list(urls)

    def use_model(self, name):
        self.name = name

    def in_flight(self, name):
        return int(name in self.waiting)


def params(version):
    return [
        ("base_model.model.q.base_layer.weight", torch.zeros(2, 2)),
        ("base_model.model.q.lora_A.default.weight", torch.full((1, 2), float(version))),
        ("base_model.model.q.lora_B.default.weight", torch.full((2, 1), float(version))),
    ]


async def test_each_version_has_a_name_and_the_newest_two_stay(tmp_path):
    client = Client()
    async with running(1, {}) as (server,):
        target = LoRAPublisher(server.url, tmp_path, CONFIG, clients=[client])
        for version in range(4):
            await target.publish(params(version), version)
            assert client.name == f"policy-v{version}"
            assert client.policy_version == version
        assert sorted(server.adapters) == ["policy-v2", "policy-v3"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["v000002", "v000003"]
        assert server.calls.count("/pause") == 0
        matrix = server.adapters["policy-v3"]["base_model.model.q.lora_A.weight"]
        assert matrix.tolist() == [[3.0, 3.0]]


async def test_an_adapter_that_somebody_waits_for_is_not_unloaded(tmp_path):
    client = Client()
    client.waiting = ("policy-v0",)
    async with running(1, {}) as (server,):
        target = LoRAPublisher(server.url, tmp_path, CONFIG, clients=[client])
        for version in range(3):
            await target.publish(params(version), version)
        assert sorted(server.adapters) == ["policy-v0", "policy-v1", "policy-v2"]
        client.waiting = ()
        await target.publish(params(3), 3)
        assert sorted(server.adapters) == ["policy-v2", "policy-v3"]


async def test_an_adapter_is_written_as_peft_reads_it(tmp_path):
    async with running(1, {}) as (server,):
        await LoRAPublisher(server.url, tmp_path, CONFIG).publish(params(1), 1)
    config = json.loads((tmp_path / "v000001" / "adapter_config.json").read_text())
    assert LoraConfig(**config).target_modules == {"q"}
    assert config["lora_alpha"] == 2
    assert sorted(load_file(tmp_path / "v000001" / "adapter_model.safetensors")) == [
        "base_model.model.q.lora_A.weight",
        "base_model.model.q.lora_B.weight",
    ]


async def test_params_without_adapters_are_refused(tmp_path):
    async with running(1, {}) as (server,):
        with pytest.raises(ConfigError, match="no LoRA matrices"):
            await LoRAPublisher(server.url, tmp_path, CONFIG).publish(params(1)[:1], 1)


async def test_a_server_that_cannot_load_it_is_named(tmp_path):
    async with running(1, {}) as (server,):
        server.faults["/v1/load_lora_adapter"] = "500"
        with pytest.raises(PublishError, match=f"{server.url}.*failed in update: .*out of memory"):
            await LoRAPublisher(server.url, tmp_path, CONFIG).publish(params(1), 1)


def test_dora_is_refused_before_anything_is_written(tmp_path):
    config = LoraConfig(r=2, use_dora=True)
    with pytest.raises(ConfigError, match="vLLM has no DoRA adapters"):
        LoRAPublisher("http://localhost:1", tmp_path / "adapters", config)
    assert not (tmp_path / "adapters").exists()
