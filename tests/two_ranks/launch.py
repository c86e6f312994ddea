"""Programs of several ranks, started by torchrun or as its processes would be."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import forked

TESTS = Path(__file__).parents[1]
# What these programs import is the code beside these tests, whatever is installed.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}


def fresh(arguments, **options):
    """A Python program that is not forked."""
    return subprocess.Popen([sys.executable, *arguments], text=True, **options)


def torchrun(module, *arguments, ranks=2):
    """Exit of the module after a run on so many ranks."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), "-m", module, *map(str, arguments)]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=400, check=False
    )


def run_on_ranks(module, *arguments, ranks=2, start=forked.Python):
    """Run the module on so many ranks, to a good end. start: as of `ends_of_ranks`."""
    for code, errors in ends_of_ranks(module, *arguments, ranks=ranks, start=start):
        assert code == 0, errors[-3000:]


def ends_of_ranks(module, *arguments, ranks=2, start=forked.Python):
    """The exit code and the errors of each rank; nothing but the ranks themselves ends one.

    start: starts a Python program; `fresh` for ranks on cards, since CUDA does not survive a fork.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    programs = [
        start(
            ["-m", module, *map(str, arguments)],
            env={**os.environ, **ENVIRONMENT, **address, "RANK": str(i), "LOCAL_RANK": str(i)},
            stderr=subprocess.PIPE,
        )
        for i in range(ranks)
    ]
    errors = [program.communicate(timeout=400)[1] for program in programs]
    return [(program.returncode, said) for program, said in zip(programs, errors, strict=True)]
