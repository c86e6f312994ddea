"""Runs that train adapters of other kinds than plain LoRA: updates, publications, a resume."""

import json

import pytest
import torch
from safetensors.torch import load_file

import ludic_train as lt
from ludic_gym.errors import ConfigError
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.runs.config import RunConfig

TINY = {"groups": 1, "group_size": 2, "eval_episodes": 1, "final_episodes": 1, "eval_every": 1}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    tokenizer = make_tokenizer(["What is 3 + 4? 7", "Reply with the number."])
    save_model(make_tiny_model(tokenizer), tokenizer, folder)
    return folder


class Different:
    """Weights that differ whatever the rewards, until the power fails."""

    def __init__(self, calls):
        self.calls = calls

    def __call__(self, trajectories):
        self.calls -= 1
        if self.calls < 0:
            raise RuntimeError("no power")
        return [t.rewards * 0 + (1.0 if i % 2 else -0.5) for i, t in enumerate(trajectories)]


def trained(base, out, *, batches=9, **options):
    return lt.train(
        "ludic/Arithmetic-v0",
        model=str(base),
        out=out,
        algo=lt.grpo(filter=None, credit=Different(batches)),
        max_tokens=4,
        preflight=False,
        lora_rank=4,
        updates=2,
        **{**TINY, **options},
    )


def learned(out):
    return load_file(out / "model" / "adapter_model.safetensors")


@pytest.mark.long
@pytest.mark.parametrize("kind", [pytest.param("rslora", marks=pytest.mark.slow), "dora"])
def test_a_run_updates_publishes_and_resumes_bit_for_bit(kind, base, tmp_path):
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    trained(base, straight, **{kind: True})
    with pytest.raises(RuntimeError, match="no power"):
        trained(base, cut, batches=1, **{kind: True})
    trained(base, cut, resume=True, **{kind: True})
    config = json.loads((straight / "model" / "adapter_config.json").read_text())
    assert (config["use_rslora"], config["use_dora"]) == (kind == "rslora", kind == "dora")
    params = learned(straight)
    assert any("lora_magnitude_vector" in name for name in params) == (kind == "dora")
    resumed = learned(cut)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in params.items())
    # It begins at 0, so it has moved.
    assert all(t.abs().max() > 0 for name, t in params.items() if "lora_B" in name)


@pytest.mark.parametrize("machine", [{"engine": "vllm"}, {"queue": "file://q.sqlite3"}])
def test_dora_is_sampled_from_by_the_local_engine_alone(machine, base, tmp_path):
    with pytest.raises(ConfigError, match="dora=True with engine="):
        trained(base, tmp_path / "run", dora=True, **machine)
    assert not (tmp_path / "run").exists()


def test_settings_of_adapters_need_adapters(tmp_path):
    with pytest.raises(ConfigError, match=r"lora_rank=0 trains all params.*'dora': True"):
        RunConfig(out=tmp_path).changed(lora_rank=0, dora=True)
    assert RunConfig(out=tmp_path).changed(lora_rank=0).tune.adapter_settings == {
        "targets": "all-linear"
    }
