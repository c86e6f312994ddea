"""Every preset, from rewards to gradient, on a policy whose expected gradient is known.

The policy says token 1 with probability p = sigmoid(z) and is rewarded with 1 for it, else 0. A
group of N samples is enumerated: each of the 2^N outcomes goes through the preset's filter, credit,
rows, aggregation and loss; the gradients, weighed by probability, add up to the expected one.

With q = 1 - p, the gradient of the expected reward is p q. What centring and dividing by a
standard deviation makes of it depends on how many of the N succeeded, k:

    sum_i A_i d lp_i / N = k (N - k) / N^2 / std,   as d lp is q for token 1 and -p for token 0.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from ludic_gym.types import Completion, Decision, Rollout, Step, Task
from ludic_train.algorithms.presets import (
    cispo,
    dapo,
    distillation,
    dr_grpo,
    grpo,
    gspo,
    ppo,
    reinforce,
    reinforce_baseline,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    rejection_sampling,
    rloo,
    scalerl,
    self_play,
    sft,
)
from ludic_train.rows import rows_from
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.step import loss_batch
from ludic_train.types import REFERENCE, VALUES, TokenLogprobs

N = 4
Z = 0.4
P = 1 / (1 + math.exp(-Z))
Q = 1 - P
TEACHER = 0.8
ZERO, ONE = 10, 11


def rollout(token, sampled_with):
    lp = math.log(sampled_with if token == ONE else 1 - sampled_with)
    call = Completion(
        text="",
        finish_reason="stop",
        prompt_ids=(5,),
        completion_ids=(token,),
        logprobs=(lp,),
        policy_version=0,
    )
    decision = Decision(action="x", completions=(call,))
    step = Step(observation="", decision=decision, reward=float(token == ONE), terminated=True)
    return Rollout(task=Task(env_id="ludic/X-v0", group="g"), steps=(step,))


def attached(item):
    """Attachments as of a trainer: values of 0, the teacher's log-probs."""
    one = item.input_ids == ONE
    judged = np.where(one, math.log(TEACHER), math.log(1 - TEACHER)).astype(np.float32)
    nothing = np.zeros(len(one), np.float32)
    return replace(item, attachments={**item.attachments, VALUES: nothing, REFERENCE: judged})


def gradient(algo, tokens, sampled_with):
    """Of the loss with respect to z, for one outcome."""
    rows = rows_from([rollout(token, sampled_with) for token in tokens], algo)
    if not rows:
        return 0.0
    rows = [attached(row) for row in rows]
    rows = algo.refine(rows) if algo.refine else rows
    ((micro_batch,),) = plan_update(rows, token_budget=100, aggregation=algo.aggregation)
    z = torch.tensor(Z, dtype=torch.float64, requires_grad=True)
    ids = torch.from_numpy(micro_batch.input_ids[micro_batch.row, micro_batch.column])
    logprobs = torch.nn.functional.logsigmoid(torch.where(ids == ONE, z, -z))
    out = TokenLogprobs(logprobs, torch.zeros_like(logprobs), torch.zeros_like(logprobs))
    loss, _ = algo.loss(out, loss_batch(micro_batch, 0))
    return torch.autograd.grad(loss, z)[0].item()


def expected_gradient(make_algo, sampled_with=P):
    total = 0.0
    for tokens in product((ZERO, ONE), repeat=N):
        ones = tokens.count(ONE)
        probability = sampled_with**ones * (1 - sampled_with) ** (N - ones)
        total += probability * gradient(make_algo(), tokens, sampled_with)
    return total


def over_successes(value):
    """The mean of value(k) over how many of the N succeed."""
    return sum(math.comb(N, k) * P**k * Q ** (N - k) * value(k) for k in range(N + 1))


PLAIN = P * Q
CENTRED = (N - 1) / N * P * Q
# Divided by the sample standard deviation, k (N - k) / (N (N - 1)) squared.
BY_STD = over_successes(lambda k: math.sqrt(k * (N - k) * (N - 1) / N**3))
# Divided by the standard deviation of the batch, k (N - k) / N^2 squared.
BY_BATCH_STD = over_successes(lambda k: math.sqrt(k * (N - k)) / N)
# One success is imitated where there is one.
BEST = (1 - Q**N) * Q
# Of KL(policy || teacher), which is to fall.
DISTILLED = -P * Q * (Z - math.log(TEACHER / (1 - TEACHER)))

PRESETS = {
    "reinforce": (reinforce, PLAIN),
    "reinforce, truncated": (lambda: reinforce(max_ratio=2.0), PLAIN),
    "baseline": (reinforce_baseline, PLAIN),
    "reinforce++": (reinforce_plus_plus, BY_STD),
    "reinforce++ baseline": (reinforce_plus_plus_baseline, BY_STD),
    "rloo": (rloo, PLAIN),
    "rloo, sequences": (lambda: rloo(max_sequence_ratio=2.0), PLAIN),
    "grpo": (grpo, BY_STD),
    "grpo, dual clip": (lambda: grpo(dual_clip=3.0), BY_STD),
    "dr_grpo": (lambda: dr_grpo(max_tokens=1), CENTRED),
    "dapo": (lambda: dapo(max_tokens=8, buffer=4), BY_STD),
    "gspo": (gspo, BY_STD),
    "cispo": (cispo, BY_STD),
    "scalerl": (scalerl, BY_BATCH_STD),
    "ppo": (ppo, BY_STD),
    "self_play": (self_play, CENTRED),
    "rejection_sampling": (rejection_sampling, BEST),
    "distillation": (distillation, DISTILLED),
    # Imitating oneself teaches nothing.
    "sft": (sft, 0.0),
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_expected_gradient_of_a_preset_is_the_one_worked_out(name):
    make_algo, ascent = PRESETS[name]
    assert expected_gradient(make_algo) == pytest.approx(-ascent, abs=2e-6)


@pytest.mark.parametrize(
    ("make_algo", "ascent"),
    [
        (lambda: reinforce(max_ratio=5.0), PLAIN),
        (lambda: rloo(max_ratio=5.0), PLAIN),
        (lambda: rloo(max_sequence_ratio=5.0), PLAIN),
        (lambda: dr_grpo(max_tokens=1, clip=0.9), CENTRED),
        (lambda: distillation(max_ratio=5.0), DISTILLED),
        (sft, 0.5 - P),
    ],
    ids=["reinforce", "rloo", "rloo, sequences", "dr_grpo", "distillation", "sft"],
)
def test_samples_of_another_policy_are_weighed_back(make_algo, ascent):
    # Importance weights make it the same expectation; imitation moves p towards the 0.5 it sees.
    assert expected_gradient(make_algo, sampled_with=0.5) == pytest.approx(-ascent, abs=2e-6)
