"""Packed rows of models whose layers carry a state from token to token."""

import copy
from dataclasses import replace

import pytest
import torch
from model_types import made
from two_ranks.learning import MOST_TOKENS, gradient_of, random_rows, relative_error
from two_ranks.learning import settings as trainer_settings

from ludic_train.distributed.fsdp import checkpoint_activations
from ludic_train.models.mixers import items_apart, items_of
from ludic_train.trainer.probes import reason_not_to_pack

STATES = ["qwen3_5_text", "lfm2", "mamba", "falcon_h1"]
# They make their masks without a look at positions.
BLIND = ["gpt_oss", "granitemoehybrid"]
MORE = ["qwen3_next", "jamba", "bamba", "nemotron_h", "recurrent_gemma", "afmoe"]


def test_items_are_read_beside_those_of_about_their_length():
    # Two rows of 40: items of 3, 20 and 17 tokens, and of 33 and 7.
    positions = torch.cat([torch.arange(size) for size in (3, 20, 17, 33, 7)]).view(2, 40)
    short, middle, long = items_of(positions).groups
    assert short.tolist() == [[0, 1, 2, 0, 0, 0, 0], [*range(73, 80)]]
    assert middle.tolist() == [[*range(3, 23)], [*range(23, 40), 0, 0, 0]]
    assert long.tolist() == [[*range(40, 73)]]
    flat = torch.cat([group.flatten() for group in (short, middle, long)])
    assert flat[items_of(positions).back].tolist() == [*range(80)]


@pytest.mark.parametrize(
    "name", [*STATES, *BLIND, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)]
)
def test_items_of_a_row_leave_each_other_alone(name):
    assert reason_not_to_pack(made(name)) is None


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["qwen3_5_text", "lfm2", "gpt_oss"])
def test_gradients_of_packed_rows_are_those_of_padded_ones(name, recompute):
    model = made(name)
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(0.5)
    items = [replace(row, input_ids=row.input_ids % 128) for row in random_rows(12, seed=1)]
    padded, metrics = gradient_of(
        items, trainer_settings(packing=False), model=copy.deepcopy(model)
    )
    if recompute:
        checkpoint_activations(model)
    packed, packed_metrics = gradient_of(items, trainer_settings(4 * MOST_TOKENS), model=model)
    assert packed_metrics["tokens/fill"].value > metrics["tokens/fill"].value + 0.1
    assert relative_error(packed, padded) < 1e-5


def test_a_model_is_as_it_was_for_all_who_call_it_after_a_packed_row():
    model, ids = made("lfm2"), torch.arange(3, 13)[None]
    positions = torch.arange(5).repeat(2)[None]
    before = model(ids, use_cache=False).logits
    decoder = model.get_decoder()
    with items_apart(decoder, positions):
        packed = decoder(ids, position_ids=positions, use_cache=False)[0]
    torch.testing.assert_close(model(ids, use_cache=False).logits, before)
    alone = decoder(ids[:, 5:], use_cache=False)[0]
    torch.testing.assert_close(packed[:, 5:], alone, atol=1e-5, rtol=0)
