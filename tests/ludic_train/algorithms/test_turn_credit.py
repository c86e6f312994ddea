import math
from dataclasses import replace

import numpy as np
import pytest
from trajectories import call, plain, rollout, trajectory
from two_ranks.learning import Fixed, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_gym.types import Task
from ludic_train.algorithms.credit import EpisodicReturn, GroupNormalizedReturn
from ludic_train.algorithms.turn_credit import (
    AnchorStateReturn,
    ProcessReward,
    TurnGAE,
    observations,
)
from ludic_train.algorithms.value_head import GAE, add_value_head
from ludic_train.algorithms.variants import gigpo, turn_ppo
from ludic_train.errors import CreditError
from ludic_train.rows import rows_from, trajectory_from
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import RETURNS, REWARDS, VALUES

A, B, C = (11, 11), (12,), (13, 13, 13)
TASK = Task(env_id="ludic/X-v0", group="g")


def played(*states, rewards, tokens=(5, 6)):
    """A dialog in which the model sees each state once it has replied to the one before."""
    ids, steps = (), []
    for state in states:
        prompt = ids + state
        steps.append((call(prompt, tokens),))
        ids = prompt + tokens
    return trajectory_from(rollout(*steps, rewards=rewards, task=TASK))


def test_the_observation_of_a_step_is_what_came_after_the_last_sampled_token():
    dialog = played(A, B, A, rewards=[0.0, 0.0, 1.0])
    seen = {step: np.frombuffer(b, np.int32).tolist() for step, b in observations(dialog).items()}
    assert seen == {0: [11, 11], 1: [12], 2: [11, 11]}
    # A context that shows the observation alone finds the same states.
    alone = trajectory_from(
        rollout(*[(call(s, (5, 6)),) for s in (A, B, A)], rewards=[0, 0, 1], task=TASK)
    )
    assert observations(alone) == observations(dialog)


def test_a_second_call_of_a_step_is_no_state():
    first = call(A, (5,))
    again = call((*A, 5, 9, 9), (6,))
    made = trajectory_from(rollout((first, again), rewards=[1.0], task=TASK))
    assert observations(made) == {0: np.array(A, np.int32).tobytes()}


def test_steps_from_equal_states_are_compared_with_each_other():
    # Discounted by 1/2. First: A 0 -> B 4, returns 2, 4. Second: A 1 -> C 0, returns 1, 0; third:
    # B 2, return 2. From A: 2, 1 (mean 1.5). From B: 4, 2 (mean 3). From C: one step, nothing.
    rollouts = [
        played(A, B, rewards=[0.0, 4.0]),
        played(A, C, rewards=[1.0, 0.0]),
        played(B, rewards=[2.0]),
    ]
    plainly = AnchorStateReturn(EpisodicReturn(), weight=2.0, gamma=0.5, divide_by_std=False)
    # Episodes earn 4, 1 and 2; twice the differences come on top.
    assert plain(plainly(rollouts)) == [[5.0, 6.0], [0.0, 1.0], [0.0]]
    # Of two returns the std is d / sqrt 2, so each advantage is sqrt 1/2 but for the eps.
    by_std = AnchorStateReturn(EpisodicReturn(), gamma=0.5, eps=0.0)(rollouts)
    half = math.sqrt(0.5)
    assert [w for own in by_std for w in own] == pytest.approx(
        [4 + half, 4 + half, 1 - half, 1, 2 - half]
    )


def test_states_of_other_groups_and_agents_are_others():
    ours, theirs = played(A, rewards=[1.0]), played(A, rewards=[0.0])
    batch = [ours, theirs, *(replace(t, group="h") for t in (theirs, theirs))]
    weights = AnchorStateReturn(EpisodicReturn(), gamma=1.0, divide_by_std=False)(batch)
    assert plain(weights) == [[1.5], [-0.5], [0.0], [0.0]]
    # Rollouts without rows have no states, and the episode's credit alone.
    bare, credit = [trajectory(1.0), trajectory(0.0)], GroupNormalizedReturn()
    assert plain(AnchorStateReturn(credit)(bare)) == plain(credit(bare))


def test_gigpo_finds_the_same_states_in_a_dialog_and_in_single_observations():
    states, rewards = (A, B, A), [[0.0, 1.0, r] for r in (0.0, 1.0, 3.0)]
    dialogs = [played(*states, rewards=r) for r in rewards]
    alone = [
        trajectory_from(rollout(*[(call(s, (5, 6)),) for s in states], rewards=r, task=TASK))
        for r in rewards
    ]
    assert plain(gigpo().credit(alone)) == plain(gigpo().credit(dialogs))


def test_process_rewards_are_normalised_over_the_steps_of_a_group_and_summed_up():
    # Rewards 0, 1, 3, 0: mean 1. Less that: -1, 0, 2, -1; sums that follow: -1, 0 and 1, -1.
    batch = [trajectory(0.0, 1.0), trajectory(3.0, 0.0)]
    assert plain(ProcessReward(divide_by_std=False)(batch)) == [[-1.0, 0.0], [1.0, -1.0]]
    # Sample std of these: sqrt(6 / 3).
    scaled = ProcessReward(eps=0.0)(batch)
    assert [w for own in scaled for w in own] == pytest.approx(
        [x / math.sqrt(2) for x in (-1, 0, 1, -1)]
    )
    assert plain(ProcessReward()([trajectory(1.0, 1.0), trajectory(1.0)])) == [[0.0, 0.0], [0.0]]
    with pytest.raises(CreditError, match="single rollout"):
        ProcessReward()([trajectory(1.0)])


def valued(turns, values, *, truncated=False):
    """The rows of a dialog of two tokens a turn, with these rewards and values per token."""
    algo = turn_ppo(filter=None)
    dialog = played(*[A] * len(turns), rewards=turns)
    (item,) = rows_from([replace(dialog, truncated=truncated)], algo)
    attached = np.zeros(len(item.input_ids), np.float32)
    attached[item.action_mask] = values
    return replace(item, attachments={**item.attachments, VALUES: attached})


def test_turn_gae_by_hand():
    # Values before the turns 0.5 and 0.2, rewards 1 and 2; gamma 0.5, lambda 0.8.
    # delta_1 = 2 - 0.2 = 1.8; delta_0 = 1 + 0.5 * 0.2 - 0.5 = 0.6; A_0 = 0.6 + 0.4 * 1.8 = 1.32.
    item = valued([1.0, 2.0], [0.5, 9.0, 0.2, -9.0])
    (found,) = TurnGAE(0.5, 0.8, whiten=False)([item])
    mask = item.action_mask
    np.testing.assert_allclose(found.weight[mask], [1.32, 1.32, 1.8, 1.8], rtol=1e-6)
    # Returns: advantage plus value of the turn.
    np.testing.assert_allclose(found.attachments[RETURNS][mask], [1.82, 1.82, 2.0, 2.0], rtol=1e-6)


def test_turn_gae_of_one_token_per_turn_is_gae():
    dialog = played(A, B, C, rewards=[1.0, 0.0, 2.0], tokens=(5,))
    (item,) = rows_from([dialog], turn_ppo())
    values = np.where(item.action_mask, 0.3 * np.arange(len(item.input_ids)), 0).astype(np.float32)
    item = replace(item, attachments={**item.attachments, VALUES: values})
    (turns,), (tokens,) = TurnGAE(0.9, 0.7, False)([item]), GAE(0.9, 0.7, False)([item])
    np.testing.assert_allclose(turns.weight, tokens.weight, rtol=1e-6)
    np.testing.assert_allclose(turns.attachments[RETURNS], tokens.attachments[RETURNS], rtol=1e-6)
    assert REWARDS in item.attachments


def test_turn_gae_needs_to_know_the_turns():
    item = replace(valued([1.0], [0.0, 0.0]), steps=None)
    with pytest.raises(CreditError, match="which step"):
        TurnGAE()([item])


async def test_turn_ppo_trains_a_model_with_a_value_head():
    batch = [played(A, B, rewards=[0.0, r]) for r in (0.0, 1.0)]
    model = tiny_model()
    add_value_head(model)
    algo = turn_ppo()
    trainer, seen = Trainer(model, algo, Fixed(rows_from(batch, algo)), cfg=settings()), []
    await trainer.train(2, lambda version, m: seen.append(m["value_error"].value))
    assert len(seen) == 2
    assert seen[1] < seen[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: AnchorStateReturn(weight=0.0),
        lambda: AnchorStateReturn(gamma=1.5),
        lambda: AnchorStateReturn(ddof=2),
        lambda: ProcessReward(eps=-1.0),
        lambda: TurnGAE(lam=2.0),
    ],
)
def test_settings_that_mean_nothing_are_refused(make):
    with pytest.raises(ConfigError):
        make()
