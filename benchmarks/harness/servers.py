"""Servers of a model on the CPU, in processes of their own, and the CPU time that these take."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ludic_train.cluster.servers.flags import ServeOptions
from ludic_train.cluster.servers.installed import find_vllm
from ludic_train.cluster.servers.process import ServerProcess, responds, spawn, started_server
from ludic_train.cluster.servers.startup import free_port, guarded

TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def local_server(folder: Path) -> Iterator[ServerProcess]:
    """A local engine of one thread."""
    port = free_port()
    words = [sys.executable, "-m", "ludic_gym", "serve", str(folder), "--engine", "local"]
    log = folder / "serve.log"
    process = spawn(guarded([*words, "--port", str(port), "--threads", "1"]), log, os.environ)
    server = ServerProcess(f"http://127.0.0.1:{port}", log, process)
    try:
        while not responds(server.url):
            time.sleep(0.2)
        yield server
    finally:
        server.stop()


@contextmanager
def vllm_server(folder: Path, python: str, *, lora: int = 0) -> Iterator[ServerProcess]:
    """The vLLM of a Python, on the CPU."""
    options, flags = ServeOptions(port=0, lora=lora), ["--max-model-len", "512"]
    flags += ["--max-num-seqs", "16"]
    with started_server(str(folder), options, find_vllm(python), flags) as server:
        yield server


def cpu_seconds(server: ServerProcess) -> float:
    """CPU time of all processes of a server so far, in hundredths of a second."""
    return sum(_seconds(path) for path in _processes(server))


def loop_seconds(server: ServerProcess) -> float:
    """CPU time so far of the main threads of vLLM's workers, which take requests in a loop."""
    workers = [path for path in _processes(server) if "VLLM::Worker" in path.read_text()]
    return sum(_seconds(path.parent / "task" / path.parent.name / "stat") for path in workers)


def _processes(server: ServerProcess) -> list[Path]:
    """The files of the processes of a server."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with suppress(OSError):
            if int(_fields(path)[3]) == server.process.pid:
                found.append(path)
    return found


def _seconds(path: Path) -> float:
    """CPU time of a process or thread so far; 0 once it has ended."""
    with suppress(OSError):
        fields = _fields(path)
        return (int(fields[11]) + int(fields[12])) / TICKS
    return 0.0


def _fields(path: Path) -> list[str]:
    """The fields from the state on: the name before it may hold spaces."""
    return path.read_text().rpartition(")")[2].split()
