"""`benchmarks/harness/row_loads.py`: the limits of rows make the arrays that rows hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from harness.row_loads import arrays, checked, rollout

from ludic_gym.types import Sampling
from ludic_train.algorithms.presets import reinforce
from ludic_train.errors import UntrainableRollout
from ludic_train.rows import rows_from, trajectory_from

FIELDS = ("input_ids", "action_mask", "steps", "behavior_logprobs", "versions", "weight")


@pytest.mark.parametrize("turns", [1, 5])
def test_the_limit_makes_the_arrays_of_the_row(turns: int) -> None:
    played = rollout(turns, 0, tokens=40)
    (row,) = rows_from([played], reinforce())
    made = arrays([step.decision.completions[0] for step in played.steps])
    for name, array in zip(FIELDS, made, strict=True):
        np.testing.assert_array_equal(array, getattr(row, name), err_msg=name, strict=True)


@pytest.mark.parametrize("turns", [1, 5])
def test_the_checked_limit_has_the_arrays_and_facts_of_the_trajectory(turns: int) -> None:
    played = rollout(turns, 0, tokens=40)
    (row,), trajectory = rows_from([played], reinforce()), trajectory_from(played)
    *made, key, info = checked(played)
    known = [getattr(row, name) for name in FIELDS]
    known += [trajectory.rewards, trajectory.parsed, trajectory.completions]
    for array, expected in zip(made, known, strict=True):
        np.testing.assert_array_equal(array, expected, strict=True)
    assert (key, info) == (trajectory.task, trajectory.info)


@pytest.mark.parametrize(
    "changed",
    [
        {"logprobs": (float("nan"),) * 20},
        {"logprobs": (-0.5,)},
        {"completion_ids": ()},
        {"sampling": Sampling(top_p=0.5)},
        {"sampling": Sampling(temperature=0.0)},
    ],
)
def test_the_checked_limit_refuses_what_rows_refuse(changed: dict[str, Any]) -> None:
    played = rollout(1, 0, tokens=40)
    (step,) = played.steps
    (completion,) = step.decision.completions
    decision = replace(step.decision, completions=(replace(completion, **changed),))
    bad = replace(played, steps=(replace(step, decision=decision),))
    with pytest.raises(UntrainableRollout):
        trajectory_from(bad)
    with pytest.raises(ValueError, match=r"log-prob|sampling"):
        checked(bad)


def test_the_limit_refuses_a_prompt_that_does_not_extend_the_one_before() -> None:
    calls = [step.decision.completions[0] for step in rollout(2, 0, tokens=40).steps]
    with pytest.raises(ValueError, match="does not extend"):
        arrays(calls[::-1])
