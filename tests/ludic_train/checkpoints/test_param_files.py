"""Params read from the files of a model, one part at a time."""

import pytest
import torch
from two_ranks.learning import tiny_mixture, tiny_model, tokenizer

from ludic_train.checkpoints.param_files import ParamFiles, hollow
from ludic_train.errors import ModelNotFound, UnsupportedModel
from ludic_train.models.load import load_model, save_model


@pytest.fixture
def folder(tmp_path):
    save_model(tiny_model(), tokenizer(), tmp_path)
    return tmp_path


def test_a_hollow_copy_shares_nothing_with_the_model_and_keeps_ties():
    model = tiny_model()
    before = [param.clone() for param in model.parameters()]
    copy = hollow(model)
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    assert (copy.lm_head.weight is copy.model.embed_tokens.weight) == tied
    assert all(param.is_meta for param in copy.parameters())
    assert all(map(torch.equal, model.parameters(), before))


def test_rows_are_those_of_the_param(folder):
    files, model = ParamFiles.of(folder), load_model(folder)[0]
    for name, param in model.named_parameters():
        assert torch.equal(files.rows(name, 1, 3), param[1:3])


def test_models_without_files_or_with_other_names_are_refused(tmp_path, folder):
    with pytest.raises(ModelNotFound, match="nobody/no-such-model"):
        ParamFiles.of("nobody/no-such-model")
    save_model(tiny_mixture(), tokenizer(), tmp_path / "mixture")
    with pytest.raises(UnsupportedModel, match=r"None in its files"):
        ParamFiles.of(tmp_path / "mixture").check(tiny_mixture())
