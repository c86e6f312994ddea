import pytest
import torch
from two_ranks.learning import tiny_model

from ludic_gym.errors import ConfigError
from ludic_train.models.blocks import blocks


def test_blocks_are_those_of_the_decoder():
    model = tiny_model()
    assert blocks(model) == list(model.model.layers)
    model.model.layers = torch.nn.Sequential(*model.model.layers)
    with pytest.raises(ConfigError, match="0 lists of modules"):
        blocks(model)
