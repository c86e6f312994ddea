import torch

from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.trainer.forward import packs_exactly


def tiny_model():
    return make_tiny_model(make_tokenizer(["a b c"]), hidden_size=16, num_heads=2, num_kv_heads=1)


def test_a_transformer_that_reads_positions_keeps_packed_items_apart():
    model = tiny_model()
    model.train()
    assert packs_exactly(model)
    assert model.training


def test_a_model_whose_packed_items_see_each_other_is_found_out():
    model = tiny_model()
    inner = model.model.forward

    def with_a_mask(input_ids, **kwargs):
        # An attention mask of ones switches the reading of positions off, without a word.
        return inner(
            input_ids=input_ids, **(kwargs | {"attention_mask": torch.ones_like(input_ids)})
        )

    model.model.forward = with_a_mask
    assert not packs_exactly(model)


def test_a_model_that_ignores_where_items_start_is_found_out():
    model = tiny_model()
    inner = model.model.forward
    model.model.forward = lambda input_ids, **kwargs: inner(
        input_ids=input_ids, **(kwargs | {"position_ids": None})
    )
    assert not packs_exactly(model)
