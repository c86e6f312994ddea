import shutil

import pytest
from two_ranks.learning import gradient_of, random_rows, relative_error, settings, tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.distributed.fsdp import (
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
