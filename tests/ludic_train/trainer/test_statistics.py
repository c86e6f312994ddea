"""Statistics that an algorithm keeps from batch to batch, in the state of its trainer."""

import json

import pytest
from trajectories import call, rollout
from two_ranks.learning import settings, tiny_model

from ludic_train.algorithms.batch_credit import OverlongPenalty, SeatBaselineReturn, TokenWhitened
from ludic_train.algorithms.presets import reinforce, self_play
from ludic_train.errors import CheckpointError
from ludic_train.rows import trajectory_from
from ludic_train.trainer.trainer import Trainer


@pytest.mark.parametrize("wrapped", [TokenWhitened, lambda inner: OverlongPenalty(inner, 8, 4)])
def test_statistics_inside_of_other_credit_go_on(wrapped):
    def new(decay):
        credit = wrapped(SeatBaselineReturn(decay))
        return credit, Trainer(tiny_model(), reinforce(credit=credit), None, cfg=settings())

    credit, trainer = new(0.5)
    credit([trajectory_from(rollout((call([1], [2]),), rewards=[3.0]))])
    again, resumed = new(0.5)
    resumed.load_state_dict(json.loads(json.dumps(trainer.state_dict())))
    inner = [getattr(c, "advantage", None) or c.credit for c in (credit, again)]
    assert inner[0].means == inner[1].means != {}


def test_the_state_of_another_algorithm_is_refused():
    other = Trainer(tiny_model(), reinforce(), None, cfg=settings())
    trainer = Trainer(tiny_model(), self_play(), None, cfg=settings())
    with pytest.raises(CheckpointError, match="self_play keeps statistics of its credit"):
        trainer.load_state_dict(other.state_dict())
