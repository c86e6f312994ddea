"""Rows that were made by hand, and not as a model reads them."""

import numpy as np
import pytest
from two_ranks.learning import settings, tiny_model

from ludic_train.algorithms.presets import ppo, sft
from ludic_train.errors import UntrainableRollout
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import REWARDS, SAWItem

MASK = np.array([False, True, True])


def row(ids=(5, 6, 7), mask=MASK, **streams):
    mask = np.asarray(mask)
    return SAWItem(
        input_ids=np.array(ids, np.int32),
        action_mask=mask,
        **{"weight": np.ones(len(ids), np.float32), **streams},
    )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        # Of hidden states at -1: the end of the widest row, which may be another item's.
        (row(mask=[True, True, True]), "row 1 .* position 0"),
        (row(mask=[0, 1, 1]), "action_mask of int64"),
        (row(ids=(5, 6, 70_000)), "tokens 5 to 70000, .* 276"),
        (row(ids=(5, -100, 7)), "tokens -100 to 7"),
        (row(weight=np.ones(4, np.float32)), r"weight of shape \[4\] for 3 tokens"),
        (row(versions=np.zeros(2, np.int32)), r"versions of shape \[2\] for 3 tokens"),
        (row(attachments={REWARDS: np.zeros(5, np.float32)}), r"rewards of shape \[5\]"),
    ],
)
@pytest.mark.parametrize("algo", [sft(), ppo()], ids=["sft", "ppo"])
def test_a_row_that_would_be_misread_is_refused(wrong, reason, algo):
    trainer = Trainer(tiny_model(), algo, None, cfg=settings())
    with pytest.raises(UntrainableRollout, match=reason):
        trainer.update([row(), wrong])
