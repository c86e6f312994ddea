"""Policies whose every batch can be listed, so that expected gradients are sums and not estimates.

A prompt has a policy of its own: the first token is STOP with probability sigmoid(-z) or GO with
sigmoid(z); after GO come LEFT with sigmoid(-y) or RIGHT with sigmoid(y). So rollouts have one
token or two, and each prompt has the params (z, y). Every batch of `size` rollouts per prompt goes
through an algorithm's filter, credit, rows, aggregation and loss, as in training; its gradient is
weighed by the probability of the batch.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import torch

from ludic_gym.types import Completion, Decision, Rollout, Step, Task
from ludic_train.rows import rows_from
from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.step import loss_batch
from ludic_train.types import REFERENCE, TokenLogprobs

STOP, GO, LEFT, RIGHT = 10, 11, 12, 13
ENDINGS = {"stop": (STOP,), "left": (GO, LEFT), "right": (GO, RIGHT)}
# Of each token: the number of its param, and the sign before it.
PLACE = np.array([(0, -1.0), (0, 1.0), (1, -1.0), (1, 1.0)])
# Of two prompts, one hard and one nearly solved: reward of each ending, and (z, y).
REWARDS = ({"stop": 0.0, "left": 0.2, "right": 1.0}, {"stop": 1.0, "left": 1.0, "right": 0.0})
PARAMS = ((-0.8, 0.3), (-1.5, 0.6))
SAMPLER = ((-0.2, -0.1), (-0.9, 0.0))
REFERENCES = ((0.3, -0.6), (-1.0, 0.1))


def token_logprobs(zy, ending):
    """Log-probs of an ending's tokens; `zy` a pair of tensors or floats."""
    z, y = (torch.as_tensor(v, dtype=torch.float64) for v in zy)
    places = [PLACE[token - STOP] for token in ENDINGS[ending]]
    return [torch.nn.functional.logsigmoid(sign * (z, y)[int(param)]) for param, sign in places]


def probability(zy, ending):
    return math.exp(sum(float(lp) for lp in token_logprobs(zy, ending)))


def rollout(prompt, ending, zy):
    """The ending as it was played by the policy `zy`."""
    call = Completion(
        text="",
        finish_reason="stop",
        prompt_ids=(prompt + 1,),
        completion_ids=ENDINGS[ending],
        logprobs=tuple(float(lp) for lp in token_logprobs(zy, ending)),
        policy_version=0,
    )
    reward = REWARDS[prompt][ending]
    decision = Decision(action="x", completions=(call,))
    step = Step(observation="", decision=decision, reward=reward, terminated=True)
    return Rollout(task=Task(env_id="ludic/X-v0", group=str(prompt)), steps=(step,))


def with_reference(row):
    """The row with the log-probs of the policies `REFERENCES` attached."""
    values = np.zeros(len(row.input_ids), np.float32)
    ids = tuple(row.input_ids[row.action_mask].tolist())
    ending = next(name for name, tokens in ENDINGS.items() if tokens == ids)
    found = token_logprobs(REFERENCES[int(row.input_ids[0]) - 1], ending)
    values[row.action_mask] = [float(lp) for lp in found]
    return replace(row, attachments={**row.attachments, REFERENCE: values})


def gradient(algo, rollouts, params=PARAMS):
    """Of the algorithm's loss on these rollouts, for [z0, y0, z1, y1]; 0 without rows."""
    rows = [with_reference(row) for row in rows_from(rollouts, algo)]
    if not rows:
        return np.zeros(2 * len(params))
    rows = algo.refine(rows) if algo.refine else rows
    ((micro_batch,),) = plan_update(rows, token_budget=10_000, aggregation=algo.aggregation)
    leaf = torch.tensor(params, dtype=torch.float64, requires_grad=True)
    where, ids = (micro_batch.row, micro_batch.column), micro_batch.input_ids
    # The id of a prompt is its number plus 1; a row may hold several rollouts.
    prompts = np.maximum.accumulate(np.where(ids < STOP, np.arange(ids.shape[1]), 0), axis=1)
    prompt = ids[micro_batch.row, prompts[where]] - 1
    param, sign = PLACE[ids[where] - STOP].T
    logits = leaf[torch.from_numpy(prompt).long(), torch.from_numpy(param).long()]
    logprobs = torch.nn.functional.logsigmoid(torch.from_numpy(sign) * logits)
    out = TokenLogprobs(logprobs, torch.zeros_like(logprobs))
    loss, _ = algo.loss(out, loss_batch(micro_batch, 0))
    return torch.autograd.grad(loss, leaf)[0].flatten().numpy()


def expected_gradient(algo, *, size=2, sampler=PARAMS):
    """The mean of `gradient` over every batch of `size` rollouts of each prompt, by `sampler`."""
    total = np.zeros(2 * len(PARAMS))
    # The order of a group's members changes nothing, so each selection is taken once.
    groups = list(combinations_with_replacement(ENDINGS, size))
    for batch in product(groups, repeat=len(PARAMS)):
        played = [(prompt, ending) for prompt, group in enumerate(batch) for ending in group]
        weight = math.prod(probability(sampler[p], ending) for p, ending in played)
        weight *= math.prod(orders(group) for group in batch)
        total += weight * gradient(algo, [rollout(p, e, sampler[p]) for p, e in played])
    return total


def orders(group):
    """Number of orders in which a group's endings can come."""
    return math.factorial(len(group)) // math.prod(map(math.factorial, Counter(group).values()))


def ascent(value, params=PARAMS):
    """Gradient of value(leaf) with respect to [z0, y0, z1, y1], by autograd."""
    leaf = torch.tensor(params, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(value(leaf), leaf)[0].flatten().numpy()


def outcomes(leaf, prompt):
    """(log-prob of each token, ending) of every ending of a prompt, with gradient."""
    return [(token_logprobs(leaf[prompt], ending), ending) for ending in ENDINGS]


def expected_reward(leaf):
    """The mean of the prompts' expected rewards: the objective."""
    return sum(
        torch.exp(sum(lps)) * REWARDS[prompt][ending]
        for prompt in range(len(REWARDS))
        for lps, ending in outcomes(leaf, prompt)
    ) / len(REWARDS)


def off_by(found, true):
    """Length of the difference of the two directions: 0 for the same, 2 for opposite ones."""
    return float(np.linalg.norm(found / np.linalg.norm(found) - true / np.linalg.norm(true)))
