"""Two real processes, started by torchrun on gloo."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from two_ranks.invariance import params_after_5_updates
from two_ranks.learning import random_rows, relative_error, tiny_model

from ludic_train.trainer.forward import forward
from ludic_train.trainer.microbatches import plan_update

TESTS = Path(__file__).parents[2]


def torchrun(module, *arguments, ranks=2):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), "-m", module, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("ranks")
    torchrun("two_ranks.invariance", out)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_gradients_of_two_ranks_are_those_of_one_process(found):
    for rank in found:
        assert max(rank["gradients"].values()) < 1e-5, rank["gradients"]
        assert len(rank["gradients"]) == 48


@pytest.mark.parametrize("sharding", ["copies", "shards"])
def test_params_after_five_updates_are_those_of_one_process(found, sharding):
    expected = params_after_5_updates(lambda model: model)
    for rank in found:
        assert relative_error(torch.tensor(rank[sharding]), expected) < 1e-5


def test_blocks_may_compute_in_bfloat16_and_add_up_in_float32(found):
    # Rounding to 8 bits moves a gradient by a percent or two; one that was all lost would be 1.
    for rank in found:
        assert 1e-4 < rank["bfloat16"] < 0.05


def test_what_ranks_compute_before_an_update_comes_back_to_its_rows(found):
    items, model = random_rows(9, masked=0.3), tiny_model()
    assert found[1]["attached"] == []
    for item, values in zip(items, found[0]["attached"], strict=True):
        expected = np.zeros(len(item.input_ids), np.float32)
        if item.action_mask.any():
            ((alone,),) = plan_update([item], token_budget=100)
            expected[item.action_mask] = forward(model, alone).logprobs.detach().numpy()
        np.testing.assert_allclose(values, expected, atol=1e-5)


def test_a_part_that_cannot_be_written_is_an_error_on_every_rank(found):
    for said in (said for rank in found for said in rank["unwritten"]):
        assert said.startswith("a checkpoint was not written: rank 1: ")
        assert said.endswith("; []")


def test_a_folder_that_rank_0_cannot_make_is_an_error_on_every_rank(found):
    assert found[0]["unmade"].startswith("NotADirectoryError")
    assert found[1]["unmade"].startswith("RankError: rank 0 failed: NotADirectoryError")


def test_what_fails_on_rank_0_stops_the_other_with_its_reason(found):
    assert found[0]["error"].startswith("EmptyBatch: of 0 rows")
    assert found[1]["error"].startswith("RankError: rank 0 failed: EmptyBatch: of 0 rows")
