"""A vLLM server as a child process, started and stopped together with its workers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import ludic_vllm
from ludic_train.cluster.servers.vllm_command import (
    Installed,
    ServeOptions,
    command_line,
    environment,
)
from ludic_train.errors import ServerError
from ludic_train.processes import last_lines, spawn, tied_to_parent, url_of

# Large models take minutes to load and compile.
START_S = 600.0
POLL_S, STOP_S, TIDY_S = 0.25, 30.0, 5.0
ENTRY_POINTS = "[vllm.general_plugins]\nludic = ludic_vllm:register\n"
METADATA = "Metadata-Version: 2.1\nName: ludic-vllm-plugin\nVersion: 0\n"


# Of an access log, such as '"GET /health HTTP/1.1" 500 Internal Server Error'.
REQUEST = re.compile(r'HTTP/[\d.]+" \d{3}\b')


@dataclass(frozen=True, slots=True, eq=False)
class ServerProcess:
    """A running server, which `stop` ends together with its workers.

    url: address without "/v1". log: file that gets its output.
    process: the child process; its id is also that of its process group.
    """

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """Stop the server and its workers, by force if SIGTERM does not stop them in time.

        Takes up to STOP_S + TIDY_S seconds; returns when the server has ended.
        """
        with suppress(ProcessLookupError):
            self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        # The process group is the child's own. Its other members get time to clean up, because
        # vLLM's shared memory would stay for good otherwise; then those that are left are killed.
        until = time.monotonic() + TIDY_S
        with suppress(ProcessLookupError):
            while time.monotonic() < until:
                # Signal 0 sends nothing, and raises once the group has no members.
                os.killpg(self.process.pid, 0)
                time.sleep(POLL_S)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def launched(
    model: str,
    options: ServeOptions,
    vllm: Installed,
    further: Sequence[str] = (),
    *,
    plugin: Path,
    log: Path,
    env: Mapping[str, str] = os.environ,
) -> ServerProcess:
    """A server that has just been started, and does not respond yet; the caller stops it.

    options: with the port that it will listen on. plugin: from `plugin_folder`.
    log: gets its output, after what is in it. env: for the server, without what it needs besides.
    Linux terminates the server when the calling thread ends.
    """
    arguments = command_line(model, options, vllm, further)
    process = spawn(tied_to_parent(arguments), log, environment(options, vllm, env, plugin))
    return ServerProcess(url_of(options.host, options.port), log, process)


@contextmanager
def plugin_folder() -> Iterator[Path]:
    """A folder for PYTHONPATH that holds the package `ludic_vllm` and its entry point, alone.

    Our own site-packages would put our torch before vLLM's.
    """
    with TemporaryDirectory(prefix="ludic-vllm-") as name:
        folder = Path(name)
        source = Path(ludic_vllm.__file__).parent
        shutil.copytree(source, folder / "ludic_vllm", ignore=shutil.ignore_patterns("__pycache__"))
        info = folder / "ludic_vllm_plugin-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA, encoding="utf-8")
        (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
        yield folder


def ended_with_log(reason: str, log: Path) -> ServerError:
    """The error of a server that cannot be used, with its last error and the end of its log.

    reason: a sentence without its period.
    """
    error, end = last_error(log), last_lines(log)
    # Failed requests may have written hundreds of lines since.
    told = "" if error in end else f" Its last error: {error}\n"
    return ServerError(f"{reason}.{told or ' '}The end of its log, {log}:\n{end}")


def last_error(log: Path) -> str:
    """The last line of a log that names an error, else its last line; "" for an empty log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    told = [line for line in lines if line.strip()]
    # What follows the error are lines of the shutdown, and of requests that fail for it.
    not_requests = [line for line in told if not REQUEST.search(line)]
    named = [line for line in not_requests if "Error" in line or "Killed" in line]
    # What vLLM's API server says for each request, after the error of the engine itself.
    causes = [line for line in named if "EngineDeadError" not in line]
    return (causes or named or told or [""])[-1].strip()
