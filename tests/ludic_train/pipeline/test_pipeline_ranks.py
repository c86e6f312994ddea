"""Rank 0 reads the queue and plans for all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from two_ranks.learning import relative_error
from two_ranks.pipeline import GROUPS, UPDATES, push, trained_params

from ludic_train.queues import SpoolQueue

TESTS = Path(__file__).parents[2]


async def test_two_ranks_learn_from_a_queue_what_one_process_does(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "two_ranks.pipeline", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    alone = SpoolQueue()
    await push(alone)
    expected = await trained_params(alone)
    for rank in (0, 1):
        params = torch.tensor(json.loads((tmp_path / f"{rank}.json").read_text()))
        assert relative_error(params, expected) < 1e-5
    queue = SpoolQueue(tmp_path / "queue.sqlite3")
    assert (await queue.status()).counts == {"trained": UPDATES * GROUPS}
    await queue.aclose()
