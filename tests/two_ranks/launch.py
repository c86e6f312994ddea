"""Programs of several ranks, started by torchrun."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
# What these programs import is the code beside these tests, whatever is installed.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}


def torchrun(module, *arguments, ranks=2):
    """How the module ended that was run on so many ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), "-m", module, *map(str, arguments)]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=400, check=False
    )


def run_on_ranks(module, *arguments, ranks=2):
    """Run the module on so many ranks, to a good end."""
    done = torchrun(module, *arguments, ranks=ranks)
    assert done.returncode == 0, done.stderr[-3000:]
