"""Publishing adapters under a name per version."""

import json

import pytest
import torch
from fake_vllm.fleet import running
from model_types import made
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from ludic_gym.errors import ConfigError
from ludic_train.cluster.publish.lora import LoRAPublisher
from ludic_train.errors import PublishError

Q = "base_model.model.model.layers.0.self_attn.q_proj"


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


def adapted(**further):
    """A model with an adapter of rank 1 on the queries of its first layer."""
    targets = {"target_modules": ["q_proj"], "layers_to_transform": [0]}
    return get_peft_model(made("qwen3"), LoraConfig(r=1, lora_alpha=2, **targets, **further))


MODEL = adapted()


def params(version):
    return [
        (name, torch.full(param.shape, float(version)) if "lora_" in name else param.detach())
        for name, param in MODEL.named_parameters()
    ]


async def test_each_version_has_a_name_and_the_newest_two_stay(tmp_path):
    client = Client()
    async with running(1, {}) as (server,):
        target = LoRAPublisher(server.url, tmp_path, MODEL, clients=[client])
        for version in range(4):
            await target.publish(params(version), version)
            assert client.name == f"policy-v{version}"
            assert client.policy_version == version
        assert sorted(server.adapters) == ["policy-v2", "policy-v3"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["v000002", "v000003"]
        assert server.calls.count("/pause") == 0
        matrix = server.adapters["policy-v3"][f"{Q}.lora_A.weight"]
        assert matrix.unique().tolist() == [3.0]


async def test_an_adapter_that_somebody_waits_for_is_not_unloaded(tmp_path):
    client = Client()
    client.waiting = ("policy-v0",)
    async with running(1, {}) as (server,):
        target = LoRAPublisher(server.url, tmp_path, MODEL, clients=[client])
        for version in range(3):
            await target.publish(params(version), version)
        assert sorted(server.adapters) == ["policy-v0", "policy-v1", "policy-v2"]
        client.waiting = ()
        await target.publish(params(3), 3)
        assert sorted(server.adapters) == ["policy-v2", "policy-v3"]


async def test_an_adapter_is_written_as_peft_reads_it(tmp_path):
    async with running(1, {}) as (server,):
        await LoRAPublisher(server.url, tmp_path, MODEL).publish(params(1), 1)
    config = json.loads((tmp_path / "v000001" / "adapter_config.json").read_text())
    assert LoraConfig(**config).target_modules == {"q_proj"}
    assert config["lora_alpha"] == 2
    assert sorted(load_file(tmp_path / "v000001" / "adapter_model.safetensors")) == [
        f"{Q}.lora_A.weight",
        f"{Q}.lora_B.weight",
    ]


async def test_params_without_adapters_are_refused(tmp_path):
    async with running(1, {}) as (server,):
        with pytest.raises(ConfigError, match="no LoRA matrices"):
            await LoRAPublisher(server.url, tmp_path, MODEL).publish(params(1)[:1], 1)


async def test_a_server_that_cannot_load_it_is_named(tmp_path):
    async with running(1, {}) as (server,):
        server.faults["/v1/load_lora_adapter"] = "500"
        with pytest.raises(PublishError, match=f"{server.url}.*failed in update: .*out of memory"):
            await LoRAPublisher(server.url, tmp_path, MODEL).publish(params(1), 1)


def test_dora_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match="vLLM has no DoRA adapters"):
        LoRAPublisher("http://localhost:1", tmp_path / "adapters", adapted(use_dora=True))
    assert not (tmp_path / "adapters").exists()


@pytest.mark.parametrize(
    ("beside", "name"),
    [
        ({"bias": "lora_only"}, "q_proj.base_layer.bias"),
        ({"modules_to_save": ["norm"]}, "norm.modules_to_save.default.weight"),
        ({"trainable_token_indices": [5, 6]}, "embed_tokens.token_adapter"),
    ],
)
def test_params_that_train_beside_the_matrices_are_refused(tmp_path, beside, name):
    model = get_peft_model(
        made("qwen2"), LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM", **beside)
    )
    with pytest.raises(ConfigError, match=f"{name}.* trains, and would not be sent"):
        LoRAPublisher("http://localhost:1", tmp_path, model)


async def test_of_two_adapters_the_active_one_is_sent(tmp_path):
    model = adapted()
    model.add_adapter("ref", LoraConfig(r=1, target_modules=["q_proj"], layers_to_transform=[0]))
    filled = [
        (name, torch.full(param.shape, 1.0 if "default" in name else 2.0))
        for name, param in model.named_parameters()
    ]
    async with running(1, {}) as (server,):
        await LoRAPublisher(server.url, tmp_path, model).publish(filled, 0)
        matrices = server.adapters["policy-v0"]
    assert {name: m.unique().tolist() for name, m in matrices.items()} == {
        f"{Q}.lora_A.weight": [1.0],
        f"{Q}.lora_B.weight": [1.0],
    }
