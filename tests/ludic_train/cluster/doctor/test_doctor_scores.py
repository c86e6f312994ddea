"""Scores of sampled tokens, worked out by hand."""

import torch

from ludic_train.cluster.doctor.checks import tolerance


def test_low_precision_is_given_more_room():
    assert tolerance(torch.float32) == 1e-4
    assert tolerance(torch.float32, torch.bfloat16) == 0.05
