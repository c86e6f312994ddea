"""Chat models as `ludic model` makes them: in time, in form, and exact from sample to update."""

import asyncio
import time

import numpy as np
import pytest
import torch

import ludic_gym as lg
import ludic_train as lt
from ludic_gym.bench.runner import run_bench
from ludic_gym.types import Sampling, Task
from ludic_train.engine.client import policy_from_run
from ludic_train.metrics import values
from ludic_train.models.load import load_model
from ludic_train.rows import rows_from
from ludic_train.runs.learner import learner_from_model
from ludic_train.runs.tasks import EVALUATIONS_FROM
from ludic_train.small_model.make import SIZES, make_small_model
from ludic_train.sources.offline import OfflineBatchSource

# CPU-seconds of one core, with room for a busy machine.
LIMITS = {"small": 1_500, "tiny": 180}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["tiny", "small"])
def made(request, tmp_path_factory):
    """The size, the folder, and the processor's seconds that it took."""
    folder = tmp_path_factory.mktemp("made") / request.param
    started = time.process_time()
    asyncio.run(make_small_model(SIZES[request.param], folder))
    return request.param, folder, time.process_time() - started


def tasks(env_id, number, **kwargs):
    sampling = Sampling(max_tokens=64)
    return [
        Task(env_id=env_id, kwargs=kwargs, seed=seed, sampling=sampling)
        for seed in range(EVALUATIONS_FROM, EVALUATIONS_FROM + number)
    ]


async def test_a_model_is_made_in_time_and_answers_in_form(made):
    size, folder, seconds = made
    assert seconds < LIMITS[size]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 6_000_000
    rules = []
    await run_bench(
        tasks("ludic/Countdown-v0", 100),
        policy_from_run(folder),
        on_episode=lambda episode: rules.append(episode.rollouts[0].steps[-1].info["rule"]),
    )
    assert rules.count("tag") >= 90


async def played(make_policy):
    """Rollouts of one turn, and of several."""
    mixed = [*tasks("ludic/Countdown-v0", 16), *tasks("ludic/TicTacToe-v0", 16)]
    return [e.rollouts[0] async for e in lg.run_episodes(mixed, make_policy)]


async def test_samples_are_those_of_transformers_and_dialogs_are_single_rows(made):
    _, folder, _ = made
    rollouts = await played(policy_from_run(folder))
    assert max(len(rollout.steps) for rollout in rollouts) > 2
    model, tokenizer = load_model(folder)
    for rollout in rollouts:
        rows = rows_from([rollout], lt.reinforce(filter=None))
        # ChatML keeps earlier messages as they are, so that a dialog of any length is one row.
        (row,) = rows
        calls = [c for step in rollout.steps for c in step.decision.completions]
        assert sum(len(call.completion_ids) for call in calls) == row.action_mask.sum()
        said = tokenizer.decode(row.input_ids[row.action_mask], skip_special_tokens=True)
        assert said == "".join(call.text for call in calls)
        ids = torch.from_numpy(row.input_ids.astype(np.int64))[None]
        with torch.no_grad():
            logprobs = model(ids).logits[0, :-1].log_softmax(-1)
        of_tokens = logprobs.gather(-1, ids[0, 1:, None])[:, 0].numpy()
        sampled = row.action_mask[1:]
        np.testing.assert_allclose(
            of_tokens[sampled], row.behavior_logprobs[1:][sampled], rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("lora_rank", [0, 4])
async def test_an_update_changes_what_is_trained_and_what_is_sampled_next(made, lora_rank):
    _, folder, _ = made
    learner = learner_from_model(str(folder), max_tokens=64, lora_rank=lora_rank, seed=0)
    rows = rows_from(await played(learner.make_policy), lt.reinforce(filter=None))
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters()}
    cfg = lt.TrainerConfig(lr=1e-2)
    source = OfflineBatchSource(rows, batch_size=len(rows))
    trainer = lt.Trainer(learner.model, lt.reinforce(filter=None), source, learner.publisher, cfg)
    await trainer.train(1)
    for name, p in learner.model.named_parameters():
        # The first half of an adapter has no gradient while the second is zero.
        if "lora_A" not in name:
            assert torch.equal(p, before[name]) == (not p.requires_grad), name
    again = rows_from(await played(learner.make_policy), lt.reinforce(filter=None))
    (metrics,) = trainer.update(again)
    assert abs(values(metrics)["mismatch/kl_at_lag_0"]) < 1e-6
