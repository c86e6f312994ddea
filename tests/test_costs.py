"""`benchmarks/costs.py`: costs that must not grow, as ratios of works of one run."""

import asyncio
import itertools
from functools import partial

import pytest
import torch
from costs import exponent, pushing, ratio, updating

from ludic_train.algorithms.presets import grpo
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.config import Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer


def test_a_ratio_is_the_median_of_those_of_the_rounds():
    # The first round of each warms up; then 2, 3 and 100.
    ours, other = iter([9.0, 2.0, 6.0, 100.0]), iter([9.0, 1.0, 2.0, 1.0])
    assert ratio(lambda: next(ours), lambda: next(other), rounds=3) == 3.0


@pytest.mark.parametrize("power", [0, 1, 2])
def test_an_exponent_is_the_power_that_a_cost_grows_with(power):
    assert exponent(lambda size: 3.0 * size**power, 10, 1000) == pytest.approx(power)


@pytest.mark.long
def test_equal_rows_cost_an_update_far_less_than_different_ones():
    torch.set_num_threads(1)
    model = make_tiny_model(make_tokenizer(["a b c"]))
    cfg = TrainerConfig(guards=Guards(max_kl_at_lag_0=None))
    trainer = Trainer(model, grpo(), None, cfg=cfg)
    different = ratio(partial(updating, trainer, 512, 1), partial(updating, trainer, 64, 8))
    # Half of what it is, on any machine.
    assert different > 1.7


@pytest.mark.long
def test_a_push_to_a_file_does_not_count_what_waits_there(tmp_path):
    def seconds(depth):
        # In a folder of its own, so that each round begins at its depth.
        folder = tmp_path / f"{depth}-{next(rounds)}"
        folder.mkdir()
        return asyncio.run(pushing(folder, depth))

    rounds = itertools.count()
    # 20 where each push counts the groups.
    assert ratio(partial(seconds, 2_000), partial(seconds, 100)) < 4
