"""Rows of model calls: prompts are compared by bytes, and found equal where their ids are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trajectories import call, rollout

from ludic_train.rows import chains, trajectory_from

# Ids of each length in bytes, beside those of the next length.
IDS = st.sampled_from([0, 1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**16, 2**31 - 1])
MANY = st.lists(IDS, min_size=1, max_size=3)


def lengths_of_rows(*calls):
    return [len(chain) for chain in chains([*enumerate(calls)])]


@given(before=MANY, added=MANY, prompt=st.lists(IDS, min_size=1, max_size=8))
def test_a_prompt_continues_a_row_if_its_ids_begin_with_those_of_the_row(before, added, prompt):
    tokens = before + added
    for ids in (prompt, tokens + prompt):
        # At least one token between two completions.
        extends = ids[: len(tokens)] == tokens and len(ids) > len(tokens)
        found = lengths_of_rows(call(before, added), call(ids, [1]))
        assert found == ([2] if extends else [1, 1])


@pytest.mark.parametrize("length", [14, 15, 16, 2**16 - 2, 2**16 - 1, 2**16])
def test_prompts_of_any_length_are_compared(length):
    first = call([5] * (length - 1), [6])
    extending, other = [5] * (length - 1) + [6, 7], [5] * length + [7]
    assert lengths_of_rows(first, call(extending, [1])) == [2]
    assert lengths_of_rows(first, call(other, [1])) == [1, 1]


def test_the_arrays_of_a_row_are_its_own_and_can_be_written():
    (row,) = trajectory_from(rollout((call([1, 2], [3]),))).rows
    arrays = [row.input_ids, row.action_mask, row.behavior_logprobs, row.versions, row.steps]
    assert [array.dtype for array in arrays] == [np.int32, bool, np.float32, np.int32, np.int32]
    assert all(array.flags.writeable for array in arrays)
