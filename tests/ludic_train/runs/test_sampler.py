"""A recipe whose episodes are played on a server."""

from contextlib import aclosing

import pytest
import torch
from fake_vllm.sampler import SamplingVLLM
from two_ranks.learning import tiny_model

from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness, write_harness
from ludic_train.algorithms.presets import grpo
from ludic_train.models.checkpoint_names import checkpoint_params
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.recipes.catalog import TIC_TAC_TOE
from ludic_train.runs.learner import learner_from_model
from ludic_train.runs.machine import Machine
from ludic_train.runs.stages import make_learner, publish_every, reward_stage
from ludic_train.runs.train import train_recipe
from ludic_train.trainer.config import TrainerConfig
from ludic_train.trainer.trainer import Trainer


@pytest.fixture
def run_folder(tmp_path):
    """A model that knows nothing, and how it is asked."""
    tokenizer = make_tokenizer(["A1 B2 C3"])
    model = make_tiny_model(tokenizer, hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1)
    save_model(model, tokenizer, tmp_path / "model")
    write_harness(tmp_path, Harness(context="latest", system_prompt=""))
    return tmp_path


@pytest.mark.parametrize("lora_rank", [0, 2])
async def test_episodes_are_played_on_the_server_which_follows_the_trainer(run_folder, lora_rank):
    start = learner_from_model(str(run_folder), max_tokens=2, lora_rank=0, seed=0)
    server = SamplingVLLM(start.model, start.tokenizer)
    await server.start()
    config = TIC_TAC_TOE.defaults.changed(
        out=run_folder,
        model=str(run_folder),
        lora_rank=lora_rank,
        groups=2,
        group_size=4,
        minibatches=2,
    )
    learner = learner_from_model(
        config.model, max_tokens=2, lora_rank=lora_rank, seed=0, servers=server.url
    )
    # Every first move of this model is illegal, and equal rewards teach nothing: keep them all.
    algo = grpo(entropy=0.01, filter=None)
    machine = Machine(engine=(server.url,))
    trainer = reward_stage(TIC_TAC_TOE, config, learner, machine, algo=algo).trainer
    async with aclosing(learner):
        await trainer.train(2)
    await server.stop()

    # Published at the start, and once after the two updates of the batch.
    assert server.calls.count("/finish_weight_update") == 2
    assert server.version == "2"
    assert server.calls.count("/inference/v1/generate") >= 8
    expected = dict(checkpoint_params(learner.model.named_parameters(), learner.model))
    for name, value in server.params.items():
        assert torch.equal(value, expected[name].detach())


@pytest.mark.long
async def test_a_server_without_sampling_masks_is_refused_before_anything_is_played(run_folder):
    start = learner_from_model(str(run_folder), max_tokens=2, lora_rank=0, seed=0)
    server = SamplingVLLM(start.model, start.tokenizer)
    await server.start()
    config = TIC_TAC_TOE.defaults.changed(out=run_folder, model=str(run_folder), top_p=0.8)
    with pytest.raises(ConfigError, match=r"does not return the tokens .* --sampling-mask"):
        await make_learner(TIC_TAC_TOE, config, Machine(engine=(server.url,)))
    await server.stop()
    assert server.calls.count("/inference/v1/generate") == 1


async def test_without_a_queue_a_server_serves_a_model_that_exists(tmp_path):
    config = TIC_TAC_TOE.defaults.changed(out=tmp_path)
    with pytest.raises(ConfigError, match="name the same one as `model`"):
        await train_recipe(TIC_TAC_TOE, config, Machine(engine=("http://localhost:8000",)))


async def test_a_lag_is_for_runs_with_a_queue_and_must_be_possible(tmp_path):
    with pytest.raises(ConfigError, match="max_lag=2, but the last of minibatches=4 updates"):
        TIC_TAC_TOE.defaults.changed(max_lag=2)
    config = TIC_TAC_TOE.defaults.changed(out=tmp_path, max_lag=3)
    with pytest.raises(ConfigError, match="max_lag=3 is for runs with a queue"):
        await train_recipe(TIC_TAC_TOE, config)


@pytest.mark.parametrize(
    ("minibatches", "max_lag", "updates"),
    # Strictly on policy, a batch may begin no update after the last push.
    [(4, None, 4), (4, 7, 4), (4, 6, 4), (4, 4, 2), (4, 3, 1), (1, 0, 1), (1, 1, 1)],
)
def test_pushes_are_as_rare_as_the_lag_allows(minibatches, max_lag, updates):
    assert publish_every(minibatches, max_lag) == updates
    if max_lag is not None:
        # The trainer's own check agrees.
        cfg = TrainerConfig(minibatches=minibatches, publish_every=updates)
        Trainer(tiny_model(), grpo(max_lag=max_lag), None, cfg=cfg)
