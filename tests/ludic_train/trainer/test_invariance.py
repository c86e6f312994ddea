"""One gradient, whatever the micro-batches, the packing and the order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_ranks.learning import (
    MOST_TOKENS,
    gradient_of,
    random_rows,
    relative_error,
    with_few_prompts,
)
from two_ranks.learning import settings as trainer_settings

from ludic_train.algorithms.aggregation import (
    ConstantLength,
    prompt_mean,
    sequence_mean,
    token_mean,
)
from ludic_train.algorithms.presets import grpo

AGGREGATIONS = [token_mean, sequence_mean, prompt_mean, ConstantLength(30)]


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(
    count=st.integers(1, 30),
    seed=st.integers(0, 1000),
    masked=st.sampled_from([0.0, 0.5, 1.0]),
    budget=st.integers(MOST_TOKENS, 400),
    packing=st.booleans(),
    prompts=st.sampled_from([None, 1, 3]),
    aggregation=st.sampled_from(AGGREGATIONS),
)
def test_budget_packing_prompts_and_order_change_nothing(
    count, seed, masked, budget, packing, prompts, aggregation
):
    items, algo = random_rows(count, seed, masked, cut=True), grpo(aggregation=aggregation)
    if prompts:
        items = with_few_prompts(items, prompts, seed)
    whole, metrics = gradient_of(items, trainer_settings(packing=False), algo)
    shuffled = [items[i] for i in np.random.default_rng(seed).permutation(count)]
    cut, cut_metrics = gradient_of(shuffled, trainer_settings(budget, packing), algo)
    assert relative_error(cut, whole) < 1e-5
    for name in ("loss", "entropy", "mismatch/kl", "mismatch/ess", "clip_high"):
        assert cut_metrics[name].value == pytest.approx(metrics[name].value, rel=1e-4, abs=1e-6)
