import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.types import Completion, Decision, Rollout, Sampling, Step, Task
from ludic_train.errors import UntrainableRollout
from ludic_train.rows import items_from

ONE = Sampling()
TASK = Task(env_id="x", group="g")


def call(prompt, sampled, *, version=0, sampling=ONE, logprobs="auto"):
    auto = tuple(-0.1 * (i + 1) for i in range(len(sampled)))
    return Completion(
        text="",
        finish_reason="stop",
        sampling=sampling,
        prompt_ids=tuple(prompt),
        completion_ids=tuple(sampled),
        logprobs=auto if logprobs == "auto" else logprobs,
        policy_version=version,
    )


def rollout(*steps):
    return Rollout(
        task=TASK,
        steps=tuple(
            Step(observation="o", decision=Decision(action="a", completions=calls), reward=0.0)
            for calls in steps
        ),
    )


def test_a_prompt_that_extends_the_row_continues_it():
    first, second = call([1, 2], [3, 4]), call([1, 2, 3, 4, 5], [6], version=7)
    (item,) = items_from([rollout((first,), (second,))], [[0.5, -2.0]])
    assert item.input_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert item.action_mask.tolist() == [False, False, True, True, False, True]
    assert item.weight.tolist() == [0, 0, 0.5, 0.5, 0, -2.0]
    np.testing.assert_allclose(item.behavior_logprobs, [0, 0, -0.1, -0.2, 0, -0.1])
    assert item.versions.tolist() == [-1, -1, 0, 0, -1, 7]
    assert (item.group, item.agent, item.temperature) == ("g", "agent", 1.0)


def test_a_prompt_that_rewrites_history_starts_a_new_row():
    first, second = call([1, 2], [3, 4]), call([1, 2, 9, 4, 5], [6])
    rows = items_from([rollout((first,), (second,))], [[1.0, 1.0]])
    assert [row.input_ids.tolist() for row in rows] == [[1, 2, 3, 4], [1, 2, 9, 4, 5, 6]]


def test_a_prompt_equal_to_the_row_starts_a_new_row():
    rows = items_from([rollout((call([1], [2]),), (call([1, 2], [3]),))], [[1.0, 1.0]])
    assert len(rows) == 2


def test_another_temperature_starts_a_new_row():
    warm = Sampling(temperature=0.7)
    first, second = call([1], [2]), call([1, 2, 3], [4], sampling=warm)
    rows = items_from([rollout((first,), (second,))], [[1.0, 1.0]])
    assert [row.temperature for row in rows] == [1.0, 0.7]


def test_every_call_of_a_turn_gets_the_weight_of_the_turn():
    calls = (call([1], [2]), call([5], [6, 7]))
    rows = items_from([rollout(calls)], [[3.0]])
    assert [row.weight.tolist() for row in rows] == [[0, 3.0], [0, 3.0, 3.0]]


def test_turns_without_a_model_call_leave_no_row():
    assert items_from([rollout((), ())], [[1.0, 2.0]]) == []


def test_demonstrations_have_neither_logprobs_nor_versions():
    (item,) = items_from([rollout((call([1], [2], logprobs=None, version=None),))], [[1.0]])
    assert item.behavior_logprobs is None
    assert item.versions is None


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Completion(text="a", finish_reason="stop"), "returns token ids"),
        (call([], [1]), r"prompt_ids=\(\)"),
        (call([1], [2, 3], logprobs=(-0.5,)), "1 log-probs for 2 tokens"),
        (call([1], [2], sampling=Sampling(top_p=0.9)), r"top_p=0\.9"),
        (call([1], [2], sampling=Sampling(temperature=0.0)), r"temperature=0\.0"),
    ],
)
def test_what_cannot_be_trained_exactly_is_refused(bad, why):
    with pytest.raises(UntrainableRollout, match=why):
        items_from([rollout((bad,))], [[1.0]])


def test_a_missing_weight_is_refused():
    with pytest.raises(ValueError, match="zip"):
        items_from([rollout((call([1], [2]),))], [[]])


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
    rows = items_from([rollout(*steps)], [weights])
    trained = [
        (token, weight)
        for row in rows
        for token, weight, on in zip(row.input_ids, row.weight, row.action_mask, strict=True)
        if on
    ]
    expected = [(t, w) for (_, sampled, _), w in zip(turns, weights, strict=True) for t in sampled]
    assert trained == expected
