import math

import numpy as np
import pytest

from ludic_train.metrics import (
    Peak,
    SampleSize,
    Stat,
    Total,
    metrics_from_bytes,
    metrics_to_bytes,
)
from ludic_train.trainer.microbatches import plan_from_bytes, plan_to_bytes, plan_update
from ludic_train.types import SAWItem


def test_metrics_come_back_exactly():
    metrics = {
        "a": Stat(0.1 + 0.2, 3.0),
        "b": Total(-math.inf),
        "c": Peak(1e-300),
        "d": SampleSize(1.0, 2.0, 3.0),
    }
    assert metrics_from_bytes(metrics_to_bytes(metrics)) == metrics


@pytest.mark.parametrize("known", [True, False])
def test_plans_come_back_exactly(known):
    mask = np.array([False, True, True])
    items = [
        SAWItem(
            input_ids=np.array([i, 2, 3], np.int32),
            action_mask=mask,
            weight=np.float32(0.5) * mask,
            behavior_logprobs=-mask.astype(np.float32) if known else None,
            versions=mask.astype(np.int32) if known else None,
            attachments={"values": mask.astype(np.float32)},
        )
        for i in range(4)
    ]
    (plan,) = plan_update(items, token_budget=6)
    back = plan_from_bytes(plan_to_bytes(plan))
    assert len(back) == len(plan) == 2
    for one, other in zip(plan, back, strict=True):
        for name in type(one).__dataclass_fields__:
            np.testing.assert_equal(getattr(other, name), getattr(one, name))
