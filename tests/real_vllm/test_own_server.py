"""`ludic train --engine vllm` with a real vLLM, from the command line."""

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludic_gym.harness import Harness, write_harness
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer

pytestmark = pytest.mark.vllm
UPDATES = 4


@pytest.fixture
def python():
    """The Python that has vLLM."""
    if (found := os.environ.get("LUDIC_VLLM_PYTHON")) is None:
        pytest.skip("LUDIC_VLLM_PYTHON names no Python with vLLM; `make test-vllm` does")
    return found


@pytest.fixture
def start(tmp_path):
    """A run's folder with a model that knows nothing, of heads that vLLM computes on a CPU."""
    tokenizer = make_tokenizer(["A1 A2 A3\nB1 B2 B3\nC1 C2 C3"])
    folder = tmp_path / "start"
    save_model(make_tiny_model(tokenizer, num_heads=2, num_kv_heads=1), tokenizer, folder / "model")
    write_harness(folder, Harness(context="latest", system_prompt=""))
    # Rewards by lot: every game of this model is lost, and equal rewards teach nothing.
    (tmp_path / "lot.py").write_text("import random\nreward = lambda rollout: random.random()\n")
    return folder


def started(out, start, python, *words):
    """The command, running."""
    options = ["--model", start, "--out", out, "--engine", "vllm", "--vllm-python", python]
    options += ["--updates", UPDATES, "--groups", 4, "--group-size", 4, "--minibatches", 1]
    options += ["--eval-episodes", 4, "--final-episodes", 4, "--max-tokens", 4, "--lr", 0.01]
    options += ["--reward", "lot:reward", "--no-preflight", *words]
    command = [sys.executable, "-m", "ludic_gym", "train", "tic-tac-toe", *map(str, options)]
    paths = [str(out.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(paths), "OMP_NUM_THREADS": "1"},
    )


def updates(out):
    """Logged metrics of each update."""
    path = out / "metrics.jsonl"
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else []
    return [line for line in lines if "loss" in line]


def pids(out):
    """Servers of the run that `out` belongs to, by the model that they serve."""
    found = subprocess.run(
        ["pgrep", "-f", f"api_server --model {out.parent}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return [int(pid) for pid in found.stdout.split()]


def ended(process):
    """All that it printed."""
    try:
        text, _ = process.communicate(timeout=900)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, text
    return text


def assert_learned(out):
    """All updates were made, from samples of the params that learn."""
    lines = updates(out)
    assert [line["update"] for line in lines] == list(range(1, UPDATES + 1))
    assert max(abs(line["mismatch/kl_at_lag_0"]) for line in lines) < 1e-6
    assert pids(out) == []


def test_adapters_alone_are_pushed_to_a_server_that_the_run_starts(tmp_path, start, python):
    out = tmp_path / "run"
    ended(started(out, start, python, "--lora-rank", 4))
    assert_learned(out)
    log = (out / "vllm.log").read_text()
    assert f"policy-2-v{UPDATES}" in log
    assert "POST /v1/load_lora_adapter" in log
    assert "POST /update_weights" not in log


def engine_of(server):
    """The process that computes: the largest child of the one that listens."""
    found = subprocess.run(
        ["pgrep", "-P", str(server)], capture_output=True, text=True, check=True
    ).stdout.split()
    return max(
        map(int, found), key=lambda pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    )


def close_port(server):
    """Shut the listening socket of another process down, by a copy of its descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(server)
    for entry in Path(f"/proc/{server}/fd").iterdir():
        if not os.readlink(entry).startswith("socket:"):
            continue
        # 438 is pidfd_getfd, the same number on every architecture.
        descriptor = libc.syscall(438, pidfd, int(entry.name), 0)
        assert descriptor >= 0, os.strerror(ctypes.get_errno())
        with socket.socket(fileno=descriptor) as copy:
            if copy.family == socket.AF_INET and copy.getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            ):
                copy.shutdown(socket.SHUT_RDWR)


# vLLM may end by itself, or run on.
ENDED_OR_HUNG = "(ended with code -?[0-9]+|did not respond for 20 s)"
FAULTS = {
    "server killed": (lambda pid: os.kill(pid, signal.SIGKILL), "ended with code -9"),
    "engine killed": (lambda pid: os.kill(engine_of(pid), signal.SIGKILL), ENDED_OR_HUNG),
    "engine stopped": (
        lambda pid: os.kill(engine_of(pid), signal.SIGSTOP),
        "did not respond for 20 s",
    ),
    "server stopped": (lambda pid: os.kill(pid, signal.SIGSTOP), "did not respond for 20 s"),
    "port closed": (close_port, ENDED_OR_HUNG),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_with_a_fault_is_started_again(tmp_path, start, python, fault):
    out, (cause, reason) = tmp_path / "run", FAULTS[fault]
    process = started(out, start, python, "--lora-rank", 0)
    while not updates(out):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    (server,) = pids(out)
    cause(server)
    began = time.monotonic()
    while pids(out) == [server]:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.1)
    # Noticed within 30 s, and its processes have been given time to end.
    assert time.monotonic() - began < 45
    said = ended(process)
    assert re.search(rf"vLLM {reason}; starting it again \(1 of 3", said), said
    assert "its last error: " in said
    assert_learned(out)
