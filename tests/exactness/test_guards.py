"""Guards that no single number, row or group can blind; a bad one costs itself alone."""

import math
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from trajectories import trajectory
from two_ranks.learning import Fixed, off, random_rows, sampled_by, tiny_model

from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.types import Task
from ludic_train.algorithms.credit import GroupNormalizedReturn
from ludic_train.algorithms.off_policy import KL_AT_LAG_0, check_sampler
from ludic_train.algorithms.presets import grpo, reinforce
from ludic_train.errors import EmptyBatch, SamplerMismatch, UntrainableRollout
from ludic_train.metrics import Stat
from ludic_train.runs.rewards import rewarded
from ludic_train.sources.rollouts import RolloutBatchSource, Scored
from ludic_train.trainer.trainer import Trainer


@pytest.mark.parametrize("stream", ["weight", "behavior_logprobs"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_refused_with_its_row(stream, value):
    good, bad = random_rows(2)
    numbers = np.zeros(len(bad.input_ids), np.float32)
    (first, *_) = np.flatnonzero(bad.action_mask)
    numbers[first] = value
    bad = replace(bad, group="7", **{stream: numbers})
    trainer = Trainer(tiny_model(), grpo(), Fixed([]))
    with pytest.raises(
        UntrainableRollout, match=f"{stream} of token {first} is {value}.*group '7'"
    ):
        trainer.update([good, bad])
    assert trainer.version == 0


def test_one_row_without_logprobs_does_not_switch_the_guard_of_the_sampler_off():
    known, unknown = random_rows(2)
    wrong = np.where(known.action_mask, np.float32(-9), np.float32(0))
    known = replace(known, behavior_logprobs=wrong, versions=np.zeros(len(wrong), np.int32))
    unknown = replace(unknown, behavior_logprobs=None, versions=None)
    with pytest.raises(SamplerMismatch):
        Trainer(tiny_model(), reinforce(), Fixed([])).update([known, unknown])


def test_a_group_with_log_probs_of_other_params_costs_itself_alone(caplog):
    honest = sampled_by(tiny_model(), random_rows(6))
    whole, other = tiny_model(), tiny_model()
    (alone,) = Trainer(whole, reinforce(), Fixed([])).update(honest[:2] + honest[4:])
    liars = [off(row) for row in honest[2:4]]
    (made,) = Trainer(other, reinforce(), Fixed([])).update([*honest[:2], *liars, *honest[4:]])
    assert made["rows/mismatched"].value == 2
    assert made["loss"] == alone["loss"]
    for a, b in zip(whole.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
    assert "log-probs of the groups ['g1'] are not those of version 0" in caplog.text


def test_most_groups_with_log_probs_of_other_params_stop_the_run():
    honest = sampled_by(tiny_model(), random_rows(6))
    liars = [off(row) for row in honest[:4]]
    with pytest.raises(SamplerMismatch):
        Trainer(tiny_model(), reinforce(), Fixed([])).update([*liars, *honest[4:]])


def test_one_nan_does_not_switch_the_guard_of_the_sampler_off():
    with pytest.raises(SamplerMismatch, match="are nan nats from it"):
        check_sampler({KL_AT_LAG_0: Stat(np.nan, 10)}, 0.2, version=3)
    check_sampler({KL_AT_LAG_0: Stat(0.1, 10)}, 0.2, version=3)


@pytest.mark.parametrize("what", ["reward", "log-prob", "score"])
async def test_a_number_that_is_not_finite_costs_its_episode_alone(what):
    first = iter([True])

    async def score(rollout):
        if not next(first, False):
            return rollout
        if what == "score":
            return rewarded(rollout, math.nan)
        (step, *others) = rollout.steps
        if what == "reward":
            step = replace(step, reward=1e200)
        else:
            (call,) = step.decision.completions
            bad = replace(call, logprobs=(-math.inf,) * len(call.completion_ids))
            step = replace(step, decision=replace(step.decision, completions=(bad,)))
        return replace(rollout, steps=(step, *others))

    client = ScriptedClient(lambda messages, sampling: "5", policy_version=3)
    play = Scored(
        play=lambda env: ChatPolicy(client, LatestObservation(), system_prompt=""), score=score
    )
    tasks = (Task(env_id="ludic/Arithmetic-v0", seed=seed) for seed in count())
    source = RolloutBatchSource(tasks, play, groups_per_batch=4, group_size=3)
    batch = await source.next_batch(reinforce())
    assert batch.metrics["episodes/failed"].value == pytest.approx(1 / 12)
    assert batch.metrics["rollouts/kept"].count == 11


@pytest.mark.parametrize("eps", [0.0, 1e-6])
def test_equal_rewards_have_no_advantage_whatever_eps_is(eps):
    trajectories = [trajectory(1.0) for _ in range(3)]
    assert [w.tolist() for w in GroupNormalizedReturn(eps=eps)(trajectories)] == [[0.0]] * 3


def test_a_batch_without_a_token_to_learn_from_is_told():
    with pytest.raises(EmptyBatch, match="of 0 rows"):
        Trainer(tiny_model(), reinforce(), Fixed([])).update([])
