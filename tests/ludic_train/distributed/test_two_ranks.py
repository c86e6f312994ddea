"""Two real processes, started by torchrun on gloo."""

import json

import numpy as np
import pytest
import torch
from made_once import made_once
from two_ranks.invariance import params_after_5_updates, params_beside_liars
from two_ranks.launch import run_on_ranks
from two_ranks.learning import random_rows, relative_error, tiny_model

from ludic_train.trainer.microbatches import plan_update
from ludic_train.trainer.step import forward


@pytest.fixture(scope="module")
def found(tmp_path_factory):

    def make(out):
        out.mkdir()
        run_on_ranks("two_ranks.invariance", out)

    out = made_once(tmp_path_factory, "invariance", make)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.long
def test_gradients_of_two_ranks_are_those_of_one_process(found):
    for rank in found:
        assert max(rank["gradients"].values()) < 1e-5, rank["gradients"]
        assert len(rank["gradients"]) == 12


@pytest.mark.parametrize("sharding", ["copies", "shards"])
def test_params_after_five_updates_are_those_of_one_process(found, sharding):
    expected = params_after_5_updates(lambda model: model)
    for rank in found:
        assert relative_error(torch.tensor(rank[sharding]), expected) < 1e-5


def test_params_that_no_loss_reaches_do_not_decay_on_two_ranks(found):
    assert [rank["towers"] for rank in found] == [[0.0, 0.0]] * 2


def test_a_group_of_another_sampler_costs_itself_alone_on_two_ranks(found):
    expected = params_beside_liars(lambda model: model, liars=False)
    for rank in found:
        assert relative_error(torch.tensor(rank["beside_liars"]), expected) < 1e-5


@pytest.mark.parametrize(("kind", "cases", "most"), [("mixtures", 8, 1e-6), ("taught", 6, 1e-5)])
def test_gradients_with_experts_or_a_teacher_are_those_of_one_process(found, kind, cases, most):
    for rank in found:
        assert max(rank[kind].values()) < most, rank[kind]
        assert len(rank[kind]) == cases


def test_blocks_may_compute_in_bfloat16_and_add_up_in_float32(found):
    # Rounding to 8 bits moves a gradient by a percent or two; one that was all lost would be 1.
    for rank in found:
        assert 1e-4 < rank["bfloat16"] < 0.05


def test_what_ranks_compute_before_an_update_comes_back_to_its_rows(found):
    items, model = random_rows(9, masked=0.3), tiny_model()
    assert found[1]["attached"] == [[], []]
    for item, values, (ids, tops) in zip(items, *found[0]["attached"], strict=True):
        expected = np.zeros(len(item.input_ids), np.float32)
        if item.action_mask.any():
            ((alone,),) = plan_update([item], token_budget=100)
            out = forward(model, alone, top_k=2)
            expected[item.action_mask] = out.logprobs.detach().numpy()
            np.testing.assert_array_equal(ids, out.top_ids.numpy())
            np.testing.assert_allclose(tops, out.top_logprobs.detach().numpy(), atol=1e-5)
        np.testing.assert_allclose(values, expected, atol=1e-5)


def test_a_checkpoint_that_cannot_be_written_is_an_error_on_every_rank(found):
    for error in (error for rank in found for error in rank["unwritten"]):
        assert error.startswith("a save failed: rank 1: ")
        assert error.endswith("; []")
    assert found[0]["unmade"].startswith("CheckpointError: cannot write")
    assert found[1]["unmade"].startswith("RankError: rank 0 failed: CheckpointError")


@pytest.mark.parametrize("sharding", ["copies", "shards", "both"])
@pytest.mark.parametrize("method", ["begin", "batch", "trained", "publication"])
def test_a_source_or_publisher_that_fails_on_rank_0_stops_the_other(found, method, sharding):
    said = [rank["errors"][f"{method} {sharding}"] for rank in found]
    assert said == [f"OSError: no {method}", f"RankError: rank 0 failed: OSError: no {method}"]


@pytest.mark.parametrize(
    ("name", "reason"), [("update", "EmptyBatch: of 0 rows"), ("refine", "LossError: no credit")]
)
def test_what_fails_on_rank_0_stops_the_other_with_its_reason(found, name, reason):
    assert found[0]["errors"][name].startswith(reason)
    assert found[1]["errors"][name].startswith(f"RankError: rank 0 failed: {reason}")
