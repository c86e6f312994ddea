import shutil

import pytest
import torch
from two_ranks.learning import gradient_of, random_rows, relative_error, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.distributed.fsdp import (
    blocks,
    checkpoint_activations,
    compile_blocks,
    shard_model,
)


def changed(change):
    def apply(model):
        change(model)
        return model

    return apply


def test_computing_activations_again_changes_no_gradient():
    items = random_rows(9)
    expected, _ = gradient_of(items, settings())
    found, _ = gradient_of(items, settings(), shard=changed(checkpoint_activations))
    assert relative_error(found, expected) < 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what torch warns of while compiling is its own
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiling_changes_no_gradient():
    items = random_rows(9)
    expected, _ = gradient_of(items, settings())
    found, _ = gradient_of(items, settings(60), shard=changed(compile_blocks))
    assert relative_error(found, expected) < 1e-5


def test_sharding_needs_other_processes():
    with pytest.raises(ConfigError, match="torchrun"):
        shard_model(tiny_model())


def test_blocks_are_those_of_the_decoder():
    model = tiny_model()
    assert blocks(model) == list(model.model.layers)
    model.model.layers = torch.nn.Sequential(*model.model.layers)
    with pytest.raises(ConfigError, match="0 lists of modules"):
        blocks(model)
