"""A vLLM server as a child process: started, waited for, and stopped with all its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkstemp
from urllib.error import URLError
from urllib.request import urlopen

from ludic_train.errors import ServerError
from ludic_train.serving.flags import ServeOptions, command_line, environment
from ludic_train.serving.installed import Installed
from ludic_train.serving.startup import bound_socket, plugin_folder, url_of

Progress = Callable[[float], None]
POLL_S, STOP_S, TIDY_S = 0.25, 30.0, 5.0
SHOWN_LINES = 20
# 1 is PR_SET_PDEATHSIG, which outlives execv; whoever started us may be gone by now.
GUARD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True, eq=False)
class ServerProcess:
    """A running server. url: without "/v1"; log: what it has written so far."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def last_lines(self) -> str:
        """The end of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-SHOWN_LINES:])

    def stop(self) -> None:
        """End the server, its workers too: first asked to, after a while made to."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        # The process group is the child's own. Its other members may still be tidying up: vLLM's
        # shared memory stays for good where they cannot. Workers that were left behind end here.
        until = time.monotonic() + TIDY_S
        with suppress(ProcessLookupError):
            while time.monotonic() < until:
                os.killpg(self.process.pid, 0)
                time.sleep(POLL_S)
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def started_server(
    model: str,
    options: ServeOptions,
    vllm: Installed,
    further: Sequence[str] = (),
    *,
    start_s: float = 600.0,
    progress: Progress = lambda waited_s: None,
) -> Iterator[ServerProcess]:
    """A server that answers; stopped at the end of the block.

    further: flags for vLLM as they are. progress: called with the seconds that have passed.
    Raises ConfigError for a port that is taken, ServerError for a server that ends or does not
    answer within `start_s`, with the end of its log.
    """
    options = replace(options, port=_free_port(options))
    with ExitStack() as stack:
        plugin = stack.enter_context(plugin_folder())
        words = command_line(model, options, vllm, further)
        variables = environment(options, vllm, os.environ, plugin)
        server = _spawned(words, variables, options)
        stack.callback(server.stop)
        _wait(server, start_s, progress)
        yield server


def _free_port(options: ServeOptions) -> int:
    with bound_socket(options.host, options.port) as probe:
        return int(probe.getsockname()[1])


def _spawned(
    words: Sequence[str], variables: Mapping[str, str], options: ServeOptions
) -> ServerProcess:
    descriptor, name = mkstemp(prefix="ludic-serve-", suffix=".log")
    with os.fdopen(descriptor, "wb") as log:
        process = subprocess.Popen(
            _guarded(words),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return ServerProcess(url_of(options.host, options.port), Path(name), process)


def _guarded(words: Sequence[str]) -> list[str]:
    """The words of a program that Linux ends when this process is gone, however it went."""
    if sys.platform != "linux":
        return list(words)
    return [sys.executable, "-IS", "-c", GUARD, str(os.getpid()), *words]


def _wait(server: ServerProcess, start_s: float, progress: Progress) -> None:
    started = time.monotonic()
    while not _answers(server.url):
        waited = time.monotonic() - started
        if (code := server.process.poll()) is not None:
            raise ServerError(
                f"vLLM ended with code {code} before it answered. The end of its log, "
                f"{server.log}:\n{server.last_lines()}"
            )
        if waited > start_s:
            raise ServerError(
                f"vLLM did not answer within {start_s:g} s. The end of its log, {server.log}:\n"
                f"{server.last_lines()}"
            )
        progress(waited)
        time.sleep(POLL_S)


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
