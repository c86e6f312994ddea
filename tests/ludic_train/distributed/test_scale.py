"""Real processes on gloo: ranks that share rows, and copies of a sharded model.

Two ranks in the usual tests, four in those by hand.
"""

import json

import numpy as np
import pytest
import torch
from made_once import made_once
from two_ranks.invariance import params_after_5_updates
from two_ranks.launch import run_on_ranks
from two_ranks.learning import gradient_of, random_rows, relative_error, settings, tiny_model
from two_ranks.scale import context_cases

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.presets import grpo
from ludic_train.algorithms.value_head import add_value_head
from ludic_train.trainer.config import Execution, TrainerConfig
from ludic_train.trainer.prepare import scored
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import PROXIMAL, VALUES


def made_by(ranks, tmp_path_factory):
    """The results of each rank."""

    def make(out):
        out.mkdir()
        run_on_ranks("two_ranks.scale", out, ranks=ranks)

    out = made_once(tmp_path_factory, f"scale-{ranks}", make)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return made_by(4, tmp_path_factory)


@pytest.mark.long
def test_two_ranks_that_share_rows_have_the_gradient_and_loss_of_one_process(tmp_path_factory):
    two = made_by(2, tmp_path_factory)
    for rank in two:
        assert max(rank["errors"].values()) < 1e-6, rank["errors"]
        assert len(rank["errors"]) == 2
    check_metrics(two)


def check_metrics(found):
    """Losses and entropies are those of one process, and no token is counted twice."""
    for name, _, rows, algo, _ in context_cases(len(found)):
        _, made = gradient_of(rows, settings(60), algo)
        for rank in found:
            for key, value in rank["metrics"][name].items():
                assert value == pytest.approx(made[key].value, rel=1e-6), (name, key)


@pytest.mark.slow
def test_gradients_of_rows_that_ranks_share_are_those_of_one_process(found):
    for rank in found:
        assert max(rank["errors"].values()) < 1e-6, rank["errors"]
        assert len(rank["errors"]) == 6
        assert rank["mixture"] < 1e-6
    check_metrics(found)


@pytest.mark.slow
def test_log_probs_and_values_of_shared_rows_come_back_to_their_rows(found):
    model, rows = tiny_model(), random_rows(9, masked=0.3)
    add_value_head(model)
    names = frozenset({PROXIMAL, VALUES})
    expected = scored(rows, model, names, settings(), execution=Execution())
    assert [rank["attached"] for rank in found[1:]] == [[]] * 3
    for item, got in zip(expected, found[0]["attached"], strict=True):
        for name in names:
            np.testing.assert_allclose(got[name], item.attachments[name], atol=1e-5)


@pytest.mark.slow
def test_copies_of_a_sharded_model_learn_what_one_process_learns(found):
    expected = params_after_5_updates(lambda model: model)
    for rank in found:
        assert relative_error(torch.tensor(rank["twice"]), expected) < 1e-5


@pytest.mark.slow
def test_a_checkpoint_of_copies_is_resumed_by_copies_and_by_shards(found):
    trainer = Trainer(tiny_model(), grpo(), None, cfg=settings())
    for seed in (0, 1):
        trainer.update(random_rows(9, seed=seed))
    expected = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
    for rank in found:
        for params in rank["resumed"]:
            assert relative_error(torch.tensor(params), expected) < 1e-5


@pytest.mark.slow
def test_what_cannot_be_divided_is_refused_on_every_rank(found):
    for rank in found:
        errors = rank["refusals"]
        assert errors["replicas"].startswith("ConfigError: replicas=3 of a model on 4 ranks")
        assert errors["ranks"].startswith("ConfigError: context_parallel=3 and 4 ranks")
        assert errors["window"].startswith("UnsupportedModel: context_parallel=2")


def test_ranks_that_share_rows_are_a_setting_with_limits():
    with pytest.raises(ConfigError, match="context_parallel=0"):
        Execution(context_parallel=0)
    with pytest.raises(ConfigError, match="router_replay with context_parallel=2"):
        TrainerConfig(router_replay=True, execution=Execution(context_parallel=2))
    with pytest.raises(ConfigError, match="context_parallel=2 and 1 ranks"):
        Trainer(tiny_model(), grpo(), None, cfg=settings(context_parallel=2))
