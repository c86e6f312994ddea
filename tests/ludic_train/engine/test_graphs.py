"""Sizes of the steps that a card captures; captures themselves are in test_on_a_card.py."""

import weakref

import numpy as np
import pytest
import torch

from ludic_gym.types import Sampling
from ludic_train.engine import decoder as decoder_module
from ludic_train.engine import layers
from ludic_train.engine.batch import Request
from ludic_train.engine.decoder import Decoder
from ludic_train.engine.engine import Engine
from ludic_train.engine.graphs import StepGraphs

# Keys of one layer, 12 rows and 256 slots.
CACHED = torch.zeros(1, 12, 1, 256, 4)


def step(steps, at, cached=CACHED, sizes=None):
    """Token and position of each row, from a step that notes its inputs in `sizes`."""

    def run(ids, at, slots):
        if sizes is not None:
            sizes.append((ids.tolist(), at.tolist(), slots))
        return torch.stack([ids, at], 1)

    ids = np.arange(7, 7 + len(at))
    return steps(run, ids, np.array(at), cached).tolist()


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
    sizes = []
    found = step(StepGraphs(), at, sizes=sizes)
    assert found == [[7 + i, each] for i, each in enumerate(at)]
    ((ids, places, read),) = sizes
    assert (len(ids), read) == (rows, slots)
    # Added rows read nothing that a row before them wrote.
    assert ids[len(at) :] == places[len(at) :] == [0] * (rows - len(at))


def test_a_later_step_of_fewer_rows_holds_nothing_of_the_one_before():
    steps, sizes = StepGraphs(), []
    step(steps, [5, 6, 7, 8], sizes=sizes)
    step(steps, [5, 6, 7], sizes=sizes)
    assert sizes[1][0] == [7, 8, 9, 0]
    assert len(steps._steps) == 1


def test_steps_are_forgotten_with_the_memory_of_the_cache():
    steps, cached = StepGraphs(), CACHED.clone()
    step(steps, [5], cached)
    step(steps, [5, 6], cached)
    assert len(steps._steps) == 2
    step(steps, [5])
    assert len(steps._steps) == 1
    steps.clear()
    assert not steps._steps


@pytest.mark.parametrize("is_captured", [True, False])
def test_steps_outlive_requests_that_join(model, tokenizer, monkeypatch, is_captured):
    monkeypatch.setattr(decoder_module, "_can_be_captured", lambda causal: is_captured)
    # No copies, which outlive them too.
    monkeypatch.setattr(layers, "JOINED_BYTES", 0)
    monkeypatch.setattr(layers, "PACKED_BYTES", 0)
    engine = Engine(model, tokenizer, max_batch_size=4)
    requests = [
        Request(prompt_ids=(5, seed), sampling=Sampling(seed=seed, max_tokens=40, temperature=9.0))
        for seed in range(5)
    ]
    for each in requests[:3]:
        engine.add(each)
    for _ in range(3):
        engine.advance(lambda: True)
    engine.cancel(requests[1:3])
    before = engine._decoder.layers
    steps = dict(engine._decoder._graphs._steps)
    for each in requests[3:]:
        engine.add(each)
        engine.advance(lambda: True)
    assert (engine._decoder.layers is before) == is_captured
    assert bool(steps) == is_captured
    found = engine._decoder._graphs._steps
    assert all(found.get(size) is step for size, step in steps.items())


def test_a_decoder_is_freed_as_soon_as_it_is_dropped(model):
    decoder = Decoder(model)
    decoder.refresh()
    dropped = weakref.ref(decoder)
    del decoder
    # A card's memory should not wait for the collector of cycles.
    assert dropped() is None


def test_they_do_not_keep_a_cache_that_was_dropped():
    steps, cached = StepGraphs(), CACHED.clone()
    step(steps, [5], cached)
    dropped = weakref.ref(cached)
    del cached
    assert dropped() is None
