"""Every example runs: a new one is tested by being there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the examples train")
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").rglob("*.py"))


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_for_two_updates(program):
    done = subprocess.run(
        [sys.executable, str(program), "--updates", "2"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "update   2  reward" in done.stdout


def test_there_are_examples():
    assert EXAMPLES
