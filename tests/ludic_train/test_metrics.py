import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludic_train.algorithms.losses import fetch_metrics
from ludic_train.errors import MetricError
from ludic_train.metrics import (
    Peak,
    SampleSize,
    Stat,
    Total,
    merge,
    metrics_from_bytes,
    metrics_to_bytes,
    values,
)

VALUES = st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=30)


def test_mean_of_parts_of_unequal_size_is_the_mean_of_all():
    # means 1 and 10: a mean of means says 5.5, all four values say (1+1+1+10)/4 = 3.25.
    whole = merge([{"x": Stat.of([1, 1, 1])}, {"x": Stat.of([10])}])
    assert whole["x"] == Stat(13.0, 4)
    assert whole["x"].value == 3.25


@given(VALUES, st.lists(st.integers(0, 30), max_size=5))
def test_any_split_gives_the_metrics_of_the_whole(numbers, cuts):
    edges = sorted({0, len(numbers), *(cut for cut in cuts if cut < len(numbers))})
    parts = [numbers[a:b] for a, b in pairwise(edges)]
    split = merge(
        {"mean": Stat.of(part), "sum": Total(sum(part)), "max": Peak.of(part)} for part in parts
    )
    assert values(split) == {
        "mean": sum(numbers) / len(numbers),
        "sum": sum(numbers),
        "max": max(numbers),
    }


def test_effective_sample_size_by_hand():
    # weights 1, 1, 2: 4^2 / (3 * 6) = 8/9; equal weights all count.
    parts = [{"ess": SampleSize(2, 2, 2)}, {"ess": SampleSize(2, 4, 1)}]
    assert merge(parts)["ess"].value == pytest.approx(8 / 9)
    assert SampleSize(6, 12, 3).value == 1.0
    assert values({"ess": SampleSize(0, 0, 0)}) == {}


def test_nothing_counted_is_nan_and_not_logged():
    assert math.isnan(Stat(0, 0).value)
    assert values({"empty": Stat(0, 0), "none": Peak(), "one": Stat(0, 1)}) == {"one": 0.0}


@pytest.mark.parametrize("parts", [(math.nan, 1.0), (1.0, math.nan)])
def test_a_nan_is_never_hidden_by_a_maximum(parts):
    assert math.isnan(merge({"x": Peak(part)} for part in parts)["x"].value)


@pytest.mark.parametrize("other", [Peak(1), Total(1)])
def test_a_name_cannot_be_a_mean_and_something_else(other):
    with pytest.raises(MetricError, match="'x'"):
        merge([{"x": Stat(1, 1)}, {"x": other}])


def test_metrics_come_back_exactly_from_the_wire():
    metrics = {
        "a": Stat(0.1 + 0.2, 3.0),
        "b": Total(-math.inf),
        "c": Peak(1e-300),
        "d": SampleSize(1.0, 2.0, 3.0),
    }
    assert metrics_from_bytes(metrics_to_bytes(metrics)) == metrics


def test_tensors_become_metrics_without_their_graph():
    total = torch.tensor(3.0, requires_grad=True) * 2
    found = {"x": (Stat, (total, torch.tensor(4))), "y": (Peak, (total,))}
    assert fetch_metrics([found, {}]) == [{"x": Stat(6.0, 4.0), "y": Peak(6.0)}, {}]
    assert fetch_metrics([{}]) == [{}]
    assert fetch_metrics([]) == []
