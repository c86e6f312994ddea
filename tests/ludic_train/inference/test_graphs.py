"""Sizes of the steps that a card captures; captures themselves are in test_on_a_card.py."""

import numpy as np
import pytest
import torch

from ludic_train.inference.graphs import StepGraphs

CACHED = torch.zeros(1, 12, 1, 256, 4)


class Noted:
    """A step that notes its inputs, and gives each row its token and position."""

    def __init__(self):
        self.sizes = []

    def __call__(self, ids, at, slots):
        self.sizes.append((ids.tolist(), at.tolist(), slots))
        return torch.stack([ids, at], 1)


def step(steps, at, cached=CACHED):
    ids = np.arange(7, 7 + len(at))
    return steps(ids, np.array(at), cached).tolist()


@pytest.mark.parametrize(
    ("at", "rows", "slots"),
    [
        ([3], 1, 64),
        ([3, 63, 9], 4, 64),
        ([3, 64, 9], 4, 128),
        # All that the cache has.
        ([5] * 9, 12, 64),
        ([200], 1, 256),
    ],
)
def test_rows_and_slots_are_rounded_up(at, rows, slots):
    run = Noted()
    assert step(StepGraphs(run), at) == [[7 + i, each] for i, each in enumerate(at)]
    ((ids, places, read),) = run.sizes
    assert (len(ids), read) == (rows, slots)
    # Added rows read nothing that a row before them wrote.
    assert ids[len(at) :] == places[len(at) :] == [0] * (rows - len(at))


def test_a_later_step_of_fewer_rows_holds_nothing_of_the_one_before():
    run = Noted()
    steps = StepGraphs(run)
    step(steps, [5, 6, 7, 8])
    step(steps, [5, 6, 7])
    assert run.sizes[1][0] == [7, 8, 9, 0]
    assert len(steps._steps) == 1


def test_steps_are_forgotten_with_the_memory_of_the_cache():
    steps = StepGraphs(Noted())
    step(steps, [5])
    step(steps, [5, 6])
    assert len(steps._steps) == 2
    step(steps, [5], CACHED.clone())
    assert len(steps._steps) == 1
    steps.clear()
    assert not steps._steps
