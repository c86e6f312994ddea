"""The two example programs find each other, and learn."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from redis_server import needs_redis

FOLDER = Path(__file__).parents[3] / "examples" / "pipeline_rl"


def start(program, *words, tmp_path):
    return subprocess.Popen(
        [sys.executable, str(FOLDER / program), *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@needs_redis
def test_an_actor_and_a_trainer_that_are_started_apart_learn_together(tmp_path, redis_server):
    ends = ["--queue", redis_server.url, "--params", "params"]
    actor = start("run_actor.py", *ends, tmp_path=tmp_path)
    trainer = start("run_trainer.py", *ends, "--updates", "12", tmp_path=tmp_path)
    text, _ = trainer.communicate(timeout=540)
    assert trainer.returncode == 0, text
    actor.send_signal(signal.SIGTERM)
    said, _ = actor.communicate(timeout=300)
    assert actor.returncode == 0, said
    lines = re.findall(r"update +(\d+)  reward (\S+)  lag (\d+)", text)
    assert [int(update) for update, _, _ in lines] == list(range(1, 13))
    assert all(int(lag) <= 2 for _, _, lag in lines)
    assert int(re.search(r"pushed (\d+) groups", said)[1]) >= 12 * 8
    assert (tmp_path / "params" / "checkpoints" / "step_00000010" / "state.json").is_file()
