"""`benchmarks/harness/row_loads.py`: the limit of rows makes the arrays that rows hold."""

from __future__ import annotations

import numpy as np
import pytest
from harness.row_loads import arrays, rollout

from ludic_train.algorithms.presets import reinforce
from ludic_train.rows import rows_from

FIELDS = ("input_ids", "action_mask", "steps", "behavior_logprobs", "versions", "weight")


@pytest.mark.parametrize("turns", [1, 5])
def test_the_limit_makes_the_arrays_of_the_row(turns: int) -> None:
    played = rollout(turns, 0, tokens=40)
    (row,) = rows_from([played], reinforce())
    made = arrays([step.decision.completions[0] for step in played.steps])
    for name, array in zip(FIELDS, made, strict=True):
        np.testing.assert_array_equal(array, getattr(row, name), err_msg=name, strict=True)


def test_the_limit_refuses_a_prompt_that_does_not_extend_the_one_before() -> None:
    calls = [step.decision.completions[0] for step in rollout(2, 0, tokens=40).steps]
    with pytest.raises(ValueError, match="does not extend"):
        arrays(calls[::-1])
