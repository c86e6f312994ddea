"""The stages of a run."""

from dataclasses import replace

import pytest

from ludic_train.inference.policy_spec import PolicySpec
from ludic_train.recipes.catalog import TIC_TAC_TOE
from ludic_train.runs.learner import learner_from_nothing
from ludic_train.runs.stages import rl_stage


@pytest.mark.parametrize(("updates", "minibatches", "made"), [(2, 4, 4), (8, 4, 8), (5, 1, 5)])
def test_the_learning_rate_falls_over_the_updates_that_whole_batches_make(
    tmp_path, updates, minibatches, made
):
    config = replace(TIC_TAC_TOE.defaults, out=tmp_path, updates=updates, minibatches=minibatches)
    learner = learner_from_nothing([], PolicySpec(), seed=0)
    stage = rl_stage(TIC_TAC_TOE, config, learner)
    assert (stage.updates, stage.trainer.cfg.decay_updates) == (made, made)
