import subprocess
import sys

import pytest


def played(folder, policy):
    """A benchmark in a process of its own: asyncio.run refuses the thread of a browser's test."""
    words = f"bench ludic/Arithmetic-v0 ludic/TicTacToe-v0 --policy {policy} --episodes 12"
    command = [sys.executable, "-m", "ludic_gym", *words.split(), "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def bench_folder(tmp_path_factory):
    """A benchmark of two envs, in which everything succeeds."""
    return played(tmp_path_factory.mktemp("runs") / "oracle-run", "oracle")


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory):
    """The same tasks, played at random."""
    return played(tmp_path_factory.mktemp("runs") / "random-run", "random")
