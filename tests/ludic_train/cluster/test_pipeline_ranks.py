"""Rank 0 reads the queue and plans for all."""

import json

import pytest
import torch
from two_ranks.launch import ends_of_ranks, run_on_ranks, torchrun
from two_ranks.learning import relative_error
from two_ranks.pipeline import GROUPS, UPDATES, push, trained_params

from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue


@pytest.mark.long
@pytest.mark.parametrize(
    "happens",
    [
        pytest.param("", id="nothing happens", marks=pytest.mark.slow),
        # To evaluate, to get a batch and to publish shards.
        pytest.param("slow", id="rank 0 takes longer than ranks wait for each other"),
    ],
)
async def test_two_ranks_learn_from_a_queue_what_one_process_does(tmp_path, happens):
    run_on_ranks("two_ranks.pipeline", tmp_path, happens)
    alone = SQLiteQueue()
    await push(alone)
    expected = await trained_params(alone)
    for rank in (0, 1):
        params = torch.tensor(json.loads((tmp_path / f"{rank}.json").read_text()))
        assert relative_error(params, expected) < 1e-5
    queue = SQLiteQueue(tmp_path / "queue.sqlite3")
    assert (await queue.status()).counts == {"trained": UPDATES * GROUPS}
    await queue.aclose()


@pytest.mark.slow
def test_torchrun_ends_the_other_rank_when_the_one_that_reads_was_killed(tmp_path):
    done = torchrun("two_ranks.pipeline", tmp_path, "killed")
    assert done.returncode != 0
    assert "Signal 9 (SIGKILL) received" in done.stderr
    assert not list(tmp_path.glob("*.json"))


def test_the_other_rank_fails_with_the_one_that_reads(tmp_path):
    ends = ends_of_ranks("two_ranks.pipeline", tmp_path, "superseded")
    assert all(code for code, _ in ends)
    assert "rank 0 failed: Superseded" in ends[1][1]
    assert not list(tmp_path.glob("*.json"))
