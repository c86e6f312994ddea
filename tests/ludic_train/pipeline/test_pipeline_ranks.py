"""Rank 0 reads the queue and plans for all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from two_ranks.learning import relative_error
from two_ranks.pipeline import GROUPS, UPDATES, push, trained_params

from ludic_train.pipeline.queues.sqlite import SQLiteQueue

TESTS = Path(__file__).parents[2]


def two_ranks(folder, happens=""):
    """How a trainer of two ranks ended to which something happens."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "two_ranks.pipeline", str(folder), happens]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=400, check=False
    )


async def test_two_ranks_learn_from_a_queue_what_one_process_does(tmp_path):
    done = two_ranks(tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    alone = SQLiteQueue()
    await push(alone)
    expected = await trained_params(alone)
    for rank in (0, 1):
        params = torch.tensor(json.loads((tmp_path / f"{rank}.json").read_text()))
        assert relative_error(params, expected) < 1e-5
    queue = SQLiteQueue(tmp_path / "queue.sqlite3")
    assert (await queue.status()).counts == {"trained": UPDATES * GROUPS}
    await queue.aclose()


@pytest.mark.parametrize(
    ("happens", "said"),
    [("killed", "Signal 9 (SIGKILL) received"), ("superseded", "rank 0 failed: Superseded")],
)
def test_no_rank_outlives_the_one_that_reads(tmp_path, happens, said):
    done = two_ranks(tmp_path, happens)
    assert done.returncode != 0
    assert said in done.stderr
    assert not list(tmp_path.glob("*.json"))


def test_ranks_wait_for_a_quiet_queue_longer_than_for_each_other(tmp_path):
    done = two_ranks(tmp_path, "quiet")
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = ((tmp_path / f"{rank}.json").read_text() for rank in (0, 1))
    assert first == second
