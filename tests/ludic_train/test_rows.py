import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trajectories import TASK, call, rollout, trajectory, weighted

from ludic_gym.errors import EpisodeError
from ludic_gym.records import task_key
from ludic_gym.types import Completion, Episode, Sampling
from ludic_train.algorithms.batch_credit import OverlongPenalty, TokenWhitened
from ludic_train.algorithms.credit import (
    GroupNormalizedReturn,
    HybridNormalizedReturn,
    LeaveOneOutReturn,
)
from ludic_train.algorithms.filters import drop_incomplete_completions, drop_truncated
from ludic_train.algorithms.presets import grpo, rejection_sampling, rloo, sft
from ludic_train.errors import CreditError, UntrainableRollout
from ludic_train.metrics import values
from ludic_train.rows import (
    after_credit,
    credited,
    failed_if_untrainable,
    filtered,
    rows_from,
    trajectories_from,
    trajectory_from,
)
from ludic_train.types import REWARDS


def test_a_prompt_that_extends_the_row_continues_it():
    first, second = call([1, 2], [3, 4]), call([1, 2, 3, 4, 5], [6], version=7)
    (item,) = rows_from([rollout((first,), (second,))], weighted([0.5, -2.0]))
    assert item.input_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert item.action_mask.tolist() == [False, False, True, True, False, True]
    assert item.weight.tolist() == [0, 0, 0.5, 0.5, 0, -2.0]
    np.testing.assert_allclose(item.behavior_logprobs, [0, 0, -0.1, -0.2, 0, -0.1])
    assert item.versions.tolist() == [-1, -1, 0, 0, -1, 7]
    assert item.steps.tolist() == [-1, -1, 0, 0, -1, 1]
    assert (item.group, item.agent, item.temperature) == ("g", "agent", 1.0)


def test_a_prompt_that_rewrites_history_starts_a_new_row():
    first, second = call([1, 2], [3, 4]), call([1, 2, 9, 4, 5], [6])
    rows = rows_from([rollout((first,), (second,))], weighted([1.0, 1.0]))
    assert [row.input_ids.tolist() for row in rows] == [[1, 2, 3, 4], [1, 2, 9, 4, 5, 6]]


def test_a_prompt_equal_to_the_row_starts_a_new_row():
    rows = rows_from([rollout((call([1], [2]),), (call([1, 2], [3]),))], weighted([1.0, 1.0]))
    assert len(rows) == 2


def test_a_reply_that_goes_on_after_a_limit_is_one_row_and_not_cut_off():
    limited = replace(call([1], [2, 3]), finish_reason="length")
    added, rest = call([1, 2, 3, 9], [4]), call([1, 2, 3], [4])
    for second, ids in ((added, [1, 2, 3, 9, 4]), (rest, [1, 2, 3, 4])):
        found = trajectory_from(rollout((limited, second)))
        (row,) = found.rows
        assert row.input_ids.tolist() == ids
        # Text that ends a thought was not sampled.
        assert row.steps.tolist() == [-1, 0, 0, *([-1] if 9 in ids else []), 0]
        assert found.completions[:, 2].tolist() == [0, 0]


def test_another_temperature_starts_a_new_row():
    warm = Sampling(temperature=0.7)
    first, second = call([1], [2]), call([1, 2, 3], [4], sampling=warm)
    rows = rows_from([rollout((first,), (second,))], weighted([1.0, 1.0]))
    assert [row.temperature for row in rows] == [1.0, 0.7]


def test_every_call_of_a_turn_gets_the_weight_of_the_turn():
    calls = (call([1], [2]), call([5], [6, 7]))
    rows = rows_from([rollout(calls)], weighted([3.0]))
    assert [row.weight.tolist() for row in rows] == [[0, 3.0], [0, 3.0, 3.0]]


def test_rows_of_one_rollout_know_each_other_and_no_others():
    two = rollout((call([1], [2]),), (call([5], [6]),))
    rows = rows_from([two, two], sft()) + rows_from([two], sft())
    names = [row.rollout for row in rows]
    assert names[0::2] == names[1::2]
    assert len(set(names)) == 3
    assert "" not in names


def test_a_row_of_a_rollout_that_was_cut_short_says_so():
    long, short = (rollout((call([1], [2]),), truncated=cut) for cut in (True, False))
    assert [row.truncated for row in rows_from([long, short], sft())] == [True, False]


def test_demonstrations_have_neither_logprobs_nor_versions():
    (item,) = rows_from([rollout((call([1], [2], logprobs=None, version=None),))], sft())
    assert item.behavior_logprobs is None
    assert item.versions is None


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Completion(text="a", finish_reason="stop"), "returns token ids"),
        (call([], [1]), r"prompt_ids=\(\)"),
        (call([1], [2, 3], logprobs=(-0.5,)), "1 log-probs for 2 tokens"),
        (call([1], [2], logprobs=(float("nan"),)), "has a log-prob of nan in step 0"),
        (call([1], [2], sampling=Sampling(top_p=0.9)), r"top_p=0\.9.* --return-sampling-mask"),
        (call([1], [2], sampling=Sampling(top_k=5)), r"top_k=5"),
        (call([1], [2], sampling=Sampling(min_p=0.1)), r"min_p=0\.1"),
        (call([1], [2], sampling=Sampling(temperature=0.0)), r"temperature=0\.0"),
    ],
)
def test_what_cannot_be_trained_exactly_is_refused(bad, why):
    with pytest.raises(UntrainableRollout, match=why):
        rows_from([rollout((bad,))], sft())


def test_a_completion_of_no_tokens_costs_its_episode_alone():
    sound, empty = (
        Episode(index=i, task=TASK, rollouts=(rollout((call([1], ids),)),))
        for i, ids in enumerate(([2], []))
    )
    assert failed_if_untrainable(sound) == sound
    failed = failed_if_untrainable(empty)
    assert failed.rollouts == ()
    assert "a completion of no tokens in step 0" in failed.error


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ([1e39], r"group 'g', is \[1e\+39\]"),
        ([], r"shape \[.*it has 1 steps"),
        ([1.0, 2.0], r"shape \[.*it has 1 steps"),
        ([[1.0]], r"shape \[.*it has 1 steps"),
    ],
)
def test_credit_that_is_not_one_float32_weight_per_step_is_refused(weights, reason):
    with pytest.raises(CreditError, match=reason):
        rows_from([rollout((call([1], [2]),))], weighted(weights))
    with pytest.raises(ValueError, match="zip"):
        rows_from([rollout((call([1], [2]),))] * 2, weighted([1.0]))


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 9), min_size=1, max_size=4),
            st.lists(st.integers(0, 9), min_size=1, max_size=4),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_sampled_token_is_in_exactly_one_row_with_its_weight(turns):
    history: tuple[int, ...] = ()
    steps = []
    for observed, sampled, rewrite in turns:
        prompt = tuple(observed) if rewrite else (*history, *observed)
        steps.append((call(prompt, sampled),))
        history = (*prompt, *sampled)
    weights = [float(i + 1) for i in range(len(steps))]
    rows = rows_from([rollout(*steps)], weighted(weights))
    trained = [
        (token, weight)
        for row in rows
        for token, weight, on in zip(row.input_ids, row.weight, row.action_mask, strict=True)
        if on
    ]
    expected = [(t, w) for (_, sampled, _), w in zip(turns, weights, strict=True) for t in sampled]
    # A prompt that was rewritten may happen to continue an older row.
    assert sorted(trained, key=lambda one: one[1]) == expected


def test_the_filter_comes_before_credit():
    # Dropping the first leaves a batch in which the weights are those of the second.
    cut, whole = (rollout((call([1], [2]),), truncated=cut) for cut in (True, False))
    (row,) = rows_from([cut, whole], weighted([5.0], filter=drop_truncated))
    assert row.weight.tolist() == [0, 5.0]
    assert rows_from([cut], weighted([5.0], filter=drop_truncated)) == []


@pytest.mark.parametrize(
    "credit",
    [
        GroupNormalizedReturn(),
        HybridNormalizedReturn(),
        LeaveOneOutReturn(),
        TokenWhitened(LeaveOneOutReturn()),
        OverlongPenalty(GroupNormalizedReturn(), max_tokens=10, buffer=2),
    ],
)
def test_a_rollout_that_a_filter_left_alone_is_dropped_and_counted(credit):
    lone = [trajectory(1.0, group="a"), trajectory(0.0, group="a", cut=True)]
    pair = [trajectory(1.0, group="b"), trajectory(0.0, group="b")]
    algo = grpo(credit=credit, filter=drop_incomplete_completions)
    kept, metrics = filtered([*lone, *pair], algo)
    assert kept == pair
    assert values(metrics) == {"rollouts/alone": 1.0}
    # A group that was played alone is a fault of the settings.
    alone, _ = filtered([trajectory(1.0, group="c")], algo)
    with pytest.raises(CreditError, match="a single rollout"):
        credited(alone, alone, algo)


def test_the_best_of_a_group_is_imitated_alone():
    group = [trajectory(1.0, group="a"), trajectory(0.5, group="a")]
    assert filtered(group, rejection_sampling()) == (group[:1], {})


def test_what_a_filter_after_credit_drops_counts_in_the_baseline():
    rewards, cut = (1.0, 1.0, 0.0, 0.0), (False, False, False, True)
    group = [trajectory(r, cut=was_cut) for r, was_cut in zip(rewards, cut, strict=True)]
    algo = rloo(filter_after_credit=drop_incomplete_completions)
    learned = after_credit(group, algo)
    assert learned == group[:3]
    weights = credited(group, learned, algo)
    # Each less the mean of the other three, the one that was cut included.
    by_hand = [1 - 1 / 3, 1 - 1 / 3, 0 - 2 / 3]
    assert [float(w[0]) for w in weights] == pytest.approx(by_hand)


def test_a_trajectory_is_a_rollout_in_tokens():
    cut_off = replace(call([1, 2, 7], [3, 4]), finish_reason="length")
    # What some wire format cannot carry, or credit could not use.
    odd = {"board": "x" * 201, "more": {}, "large": 2**70, "half": "\ud800", "\ud800": 1}
    played = rollout(
        (call([1], [2]), cut_off),
        (),
        rewards=(0.25, 1.0),
        truncated=True,
        info={"success": np.bool_(True), "moves": 3, "note": "ok", **odd},
        agent="X",
    )
    found = trajectory_from(played)
    assert [row.input_ids.tolist() for row in found.rows] == [[1, 2, 7, 3, 4]]
    assert not found.rows[0].weight.any()
    assert found.rewards.tolist() == [0.25, 1.0]
    assert found.parsed.tolist() == [True, True]
    # Step, tokens, and if `max_tokens` cut the completion off.
    assert found.completions.tolist() == [[0, 1, 0], [0, 2, 1]]
    assert (found.env_id, found.agent, found.group) == ("ludic/X-v0", "X", "g")
    assert (found.truncated, found.success, found.total_reward) == (True, True, 1.25)
    assert found.info == {"success": True, "moves": 3, "note": "ok"}
    assert json.loads(json.dumps(dict(found.info))) == found.info


def test_equal_tasks_have_equal_keys_however_they_are_sampled():
    other = replace(TASK, sampling=Sampling(seed=3), group="h")
    assert task_key(TASK) == task_key(other)
    assert len({task_key(replace(TASK, seed=seed)) for seed in range(9)}) == 9


@pytest.mark.parametrize(
    ("calls", "rewards", "earned"),
    [
        # At the last token of each step, in one row or another.
        ([[([1], [2, 3])], [([1, 2, 3], [4])]], [0.5, 2.0], [[0, 0, 0.5], [0, 0, 0, 2.0]]),
        ([[([1], [2, 3])], [([1, 2, 3, 9], [4])]], [0.5, 2.0], [[0, 0, 0.5, 0, 2.0]]),
        # Of several calls of a step, at the last.
        ([[([1], [2]), ([7], [8])]], [3.0], [[0, 0], [0, 3.0]]),
        # A step without a call: at the last token before it; without any, at the first that has.
        ([[([1], [2])], [], [([5], [6])]], [1.0, 10.0, 100.0], [[0, 11.0], [0, 100.0]]),
        ([[], [([1], [2])], []], [1.0, 10.0, 100.0], [[0, 111.0]]),
    ],
)
def test_rewards_are_attached_for_algorithms_that_ask(calls, rewards, earned):
    steps = [tuple(call(*each) for each in step) for step in calls]
    algo = sft(attach=frozenset({REWARDS}))
    rows = rows_from([rollout(*steps, rewards=rewards)], algo)
    assert [row.attachments[REWARDS].tolist() for row in rows] == earned
    assert not any(row.attachments for row in rows_from([rollout(*steps)], sft()))


def episodes(*failed, size=2):
    """Episodes of groups of `size`, those of the given numbers failed."""
    played = rollout((call([1], [2]),))
    for number in range(4):
        task = replace(TASK, group=str(number // size))
        if number in failed:
            yield Episode(index=number, task=task, error="the endpoint is down")
        else:
            yield Episode(index=number, task=task, rollouts=(replace(played, task=task),))


def groups_of(found):
    return [trajectory.group for trajectory in found]


def test_failed_episodes_leave_the_groups_that_can_still_be_compared():
    assert groups_of(trajectories_from(list(episodes()), 2)) == ["0", "0", "1", "1"]
    assert groups_of(trajectories_from(list(episodes(1)), 2)) == ["1", "1"]
    assert groups_of(trajectories_from(list(episodes(1, size=4)), 4)) == ["0", "0", "0"]
    assert groups_of(trajectories_from(list(episodes(1, 2, size=1)), 1)) == ["0", "3"]


def test_episodes_that_mostly_failed_are_an_error_with_the_reason():
    with pytest.raises(EpisodeError, match=r"3 of 4 episodes failed; .*the endpoint is"):
        trajectories_from(list(episodes(0, 1, 2)), 2)


def test_episodes_without_a_model_are_named():
    played = [Episode(index=0, task=TASK, rollouts=(rollout(()),))]
    with pytest.raises(UntrainableRollout, match="none of 1 rollouts of ludic/X-v0"):
        trajectories_from(played, 1)


def test_dialogs_that_take_turns_are_a_row_each():
    planner, worker = call([1], [2]), call([5], [6])
    calls = (planner, worker, call([1, 2, 9], [3]), call([5, 6, 9], [7]))
    rows = trajectory_from(rollout(*((each,) for each in calls))).rows
    assert [row.input_ids.tolist() for row in rows] == [[1, 2, 9, 3], [5, 6, 9, 7]]
    assert [row.steps.tolist() for row in rows] == [[-1, 0, -1, 2], [-1, 1, -1, 3]]
