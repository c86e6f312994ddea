"""What the trainer makes of sampled tokens, by hand."""

import math

import pytest
import torch

from ludic_train.doctor.scores import nucleus, tolerance

# Probabilities 1/2, 1/4, 1/4 of three tokens.
LOGITS = torch.tensor([[math.log(2), 0.0, 0.0]])


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1.0, 3), (0.9, 3), (0.75, 2), (0.6, 2), (0.5, 1), (0.1, 1)],
)
def test_the_nucleus_is_the_smallest_set_with_that_much_probability(top_p, kept):
    assert int(torch.isfinite(nucleus(LOGITS, top_p)).sum()) == kept


def test_low_precision_is_given_more_room():
    assert tolerance(torch.float32) == 1e-4
    assert tolerance(torch.float32, torch.bfloat16) == 0.05
