"""Episodes of several turns: one row that grows, or one row per turn, and the same gradient."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from trajectories import one_row_per_step
from two_ranks.learning import relative_error, settings, tiny_model

from ludic_gym.types import Completion, Decision, Rollout, Step, Task
from ludic_train.algorithms.aggregation import token_mean
from ludic_train.algorithms.presets import grpo, reinforce
from ludic_train.rows import rows_from, trajectory_from
from ludic_train.trainer.trainer import Trainer

PROMPT, REPLY = 6, 4


def episode(turns, seed=0, rewards=None):
    """A rollout whose prompts extend each other: PROMPT new tokens a turn, and REPLY sampled."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=turns) if rewards is None else rewards
    ids: tuple[int, ...] = ()
    steps = []
    for reward in rewards:
        prompt = ids + tuple(map(int, rng.integers(3, 250, PROMPT)))
        reply = tuple(map(int, rng.integers(3, 250, REPLY)))
        ids = prompt + reply
        call = Completion(
            text="",
            finish_reason="stop",
            prompt_ids=prompt,
            completion_ids=reply,
            logprobs=tuple(rng.normal(-5.5, 0.2, REPLY).tolist()),
            policy_version=0,
        )
        decision = Decision(action="x", completions=(call,))
        steps.append(Step(observation="", decision=decision, reward=float(reward)))
    return Rollout(task=Task(env_id="ludic/X-v0", group=str(seed // 2)), steps=tuple(steps))


def loss_and_gradient(algo, items):
    model = tiny_model()
    cfg = replace(settings(4096), max_seq_len=512)
    (metrics,) = Trainer(model, algo, None, cfg=cfg).update(items)
    return metrics["loss"].value, torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("algo", [reinforce(), grpo(aggregation=token_mean)])
@pytest.mark.parametrize("turns", [2, 5, 10])
def test_one_row_for_all_turns_has_the_loss_and_gradient_of_a_row_per_turn(algo, turns):
    rollouts = [trajectory_from(episode(turns, seed)) for seed in range(4)]
    merged = rows_from(rollouts, algo)
    split = rows_from([one_row_per_step(rollout) for rollout in rollouts], algo)
    assert (len(merged), len(split)) == (4, 4 * turns)
    loss, gradient = loss_and_gradient(algo, merged)
    other_loss, other_gradient = loss_and_gradient(algo, split)
    assert other_loss == pytest.approx(loss, rel=1e-5)
    assert relative_error(other_gradient, gradient) < 1e-5


def test_a_ten_turn_episode_costs_at_most_a_fifth_more_than_its_tokens():
    rollouts = [episode(turns, seed) for seed, turns in enumerate([10, 10, 9, 8, 6, 4, 2, 1])]
    items = rows_from(rollouts, reinforce())
    cfg = replace(settings(1024), max_seq_len=512)
    (metrics,) = Trainer(tiny_model(), reinforce(), None, cfg=cfg).update(items)
    assert metrics["tokens/trained"].value == 50 * (PROMPT + REPLY)
    assert metrics["tokens/fill"].value > 1 / 1.2
