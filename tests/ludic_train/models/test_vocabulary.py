"""Rows of a padded vocabulary, and params that no loss reaches."""

import asyncio

import numpy as np
import pytest
import torch
from model_types import ARCHITECTURES, made

from ludic_gym.errors import ConfigError
from ludic_gym.types import Sampling
from ludic_train.algorithms.presets import sft
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import UntrainableRollout
from ludic_train.models.head import action_logprobs
from ludic_train.models.load import load_model, save_model
from ludic_train.models.modules import freeze_unreached, limit_vocabulary, vocabulary_of
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem

TOKENIZER = make_tokenizer(["2 + 3 = 5 the cat sat"])
SIZE, SPARE = len(TOKENIZER), 64
DIALOG = [{"role": "user", "content": "2 + 3 = ?"}]


def padded_model(seed=0, *, tied=False):
    """A model with spare rows that are likelier than all tokens."""
    model = make_tiny_model(TOKENIZER, hidden_size=32, num_layers=1, seed=seed)
    model.config.tie_word_embeddings = tied
    model.resize_token_embeddings(SIZE + SPARE)
    with torch.no_grad():
        model.get_output_embeddings().weight[SIZE:] *= 50
    return model


def scores(model, ids, begin, temperature=1.0, **options):
    """Log-probs of the tokens from `begin` on."""
    column = torch.arange(begin, len(ids))
    heat = torch.full((len(column),), temperature)
    row = torch.tensor([ids])
    return action_logprobs(model, row, torch.zeros_like(column), column, heat, **options)


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7, "top_p": 0.9}], ids=str)
def test_spare_rows_are_not_sampled_and_both_sides_have_the_same_log_probs(settings):
    model = padded_model()
    client = LocalChatClient(model, TOKENIZER)
    reply = asyncio.run(client.complete(DIALOG, Sampling(max_tokens=24, seed=1, **settings)))
    assert max(reply.completion_ids) < SIZE
    if settings:
        return
    ids = [*reply.prompt_ids, *reply.completion_ids]
    out = scores(model, ids, len(reply.prompt_ids))
    np.testing.assert_allclose(out.logprobs.tolist(), reply.logprobs, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"top": 3}], ids=["plain head", "general head"])
def test_a_padded_model_is_scored_and_learns_as_the_model_without_padding(options):
    padded, plain = padded_model(), make_tiny_model(TOKENIZER, hidden_size=32, num_layers=1)
    limit_vocabulary(padded, SIZE)
    with torch.no_grad():
        for table in ("get_input_embeddings", "get_output_embeddings"):
            weight = getattr(padded, table)().weight[:SIZE].clone()
            getattr(plain, table)().weight.copy_(weight)
    ids = TOKENIZER.encode("the cat sat 2 + 3")
    outs = [scores(model, ids, 2, 0.8, **options) for model in (padded, plain)]
    for out in outs:
        (out.logprobs.sum() + out.entropy.sum()).backward()
    torch.testing.assert_close(outs[0].logprobs, outs[1].logprobs)
    torch.testing.assert_close(outs[0].entropy, outs[1].entropy)
    head, other = (model.get_output_embeddings().weight.grad for model in (padded, plain))
    torch.testing.assert_close(head[:SIZE], other)
    assert not head[SIZE:].any()


def test_the_real_vocabulary_is_found_when_a_model_is_loaded(tmp_path):
    model = padded_model(tied=True)
    assert vocabulary_of(model) == SIZE + SPARE
    save_model(model, TOKENIZER, tmp_path)
    loaded, _ = load_model(tmp_path)
    assert vocabulary_of(loaded) == SIZE
    # Other ranks and later processes have the config alone.
    assert vocabulary_of(type(loaded)(loaded.config)) == SIZE


def test_a_row_with_a_token_that_is_none_is_refused():
    model = padded_model()
    limit_vocabulary(model, SIZE)
    ids, mask = np.array([5, 6, SIZE], np.int32), np.array([False, True, True])
    row = SAWItem(input_ids=ids, action_mask=mask, weight=mask.astype(np.float32))
    with pytest.raises(UntrainableRollout, match=str(SIZE)):
        Trainer(model, sft(), None).update([row])


def test_a_tokenizer_of_more_ids_than_the_model_has_rows_is_refused():
    model = make_tiny_model(TOKENIZER, hidden_size=32, num_layers=1)
    with pytest.raises(ConfigError, match=f"has {SIZE + 1} ids and the model {SIZE}"):
        limit_vocabulary(model, SIZE + 1)


def test_a_tower_that_no_log_prob_depends_on_is_frozen():
    model = make_tiny_model(TOKENIZER, hidden_size=32, num_layers=1)
    model.tower = torch.nn.Linear(4, 4)
    trainer = Trainer(model, sft(), None)
    assert not any(param.requires_grad for param in model.tower.parameters())
    trained = sum(len(group["params"]) for group in trainer.optimizer.param_groups)
    assert trained == len(list(model.parameters())) - 2


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_other_param_of_an_architecture_has_a_gradient(name):
    model = made(name).train(False)
    frozen = set(freeze_unreached(model))
    out = scores(model, list(range(3, 60)), 1)
    (out.logprobs.sum() + out.entropy.sum()).backward()
    without = {n for n, p in model.named_parameters() if p.grad is None and n not in frozen}
    # Experts that none of these tokens went to, and what chooses among them.
    assert not {n for n in without if ".experts." not in n and "expert_bias" not in n}
    assert not frozen
