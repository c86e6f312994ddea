"""Child processes: command lines, addresses, logs, exit codes, and signals that stop them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ludic_train.errors import ServerError

Progress = Callable[[float], None]
LAST_LINES = 20
# Exit codes. A role failed for another reason than its configuration; 128 + SIGINT, by which shells
# report Ctrl-C; EX_TEMPFAIL: another trainer has the run, and this one is not to be started again.
FAILED, INTERRUPTED, SUPERSEDED = 1, 130, 75
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# 1 is PR_SET_PDEATHSIG, which outlives execv. Our own process may have ended before the call, and
# then no signal follows, so the parent's id is compared.
GUARD = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket with that address, not listening yet; the caller closes it.

    host: IPv4 or IPv6 address, or a host name. port: 0 for any free one.
    Raises ServerError for a port in use.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    # As servers do: a port whose last connections are still closing can be taken.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ServerError(
            f"cannot listen on {host}:{port} ({error.strerror}): take another --port, 0 for any "
            "that is free"
        ) from error
    return bound


def free_port(host: str = "127.0.0.1", port: int = 0) -> int:
    """The port itself if it is free, or any free one for 0.

    Another process can take the port before the caller does.
    Raises ServerError for one in use.
    """
    with bound_socket(host, port) as probe:
        return int(probe.getsockname()[1])


def url_of(host: str, port: int) -> str:
    """URL on this machine of a server that listens there.

    A wildcard address such as 0.0.0.0 is replaced by that of the loopback interface.
    """
    written = f"[{host}]" if ":" in host else host
    reached = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(written, written)
    return f"http://{reached}:{port}"


def printed_progress() -> Progress:
    """A function that prints the seconds of a start on stderr.

    On a terminal the line is overwritten; elsewhere there is one every ten seconds.
    """
    next_line_s = 10.0

    def print_progress(waited_s: float) -> None:
        nonlocal next_line_s
        if sys.stderr.isatty():
            print(f"\rvLLM is starting: {waited_s:4.0f} s", end="", file=sys.stderr, flush=True)
        elif waited_s >= next_line_s:
            next_line_s = waited_s + 10.0
            print(f"vLLM is starting: {waited_s:.0f} s", file=sys.stderr, flush=True)

    return print_progress


@contextmanager
def stop_handler(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call `handler` for SIGINT and SIGTERM, until the end of the block."""
    usual = {each: signal.getsignal(each) for each in STOP_SIGNALS}
    try:
        for each in STOP_SIGNALS:
            signal.signal(each, handler)
        yield
    finally:
        for each, before in usual.items():
            signal.signal(each, before)


def tied_to_parent(arguments: Sequence[str]) -> list[str]:
    """A command that Linux terminates by SIGTERM when this process ends, even by SIGKILL.

    Also when the thread that starts it ends.
    """
    if sys.platform != "linux":
        return list(arguments)
    return [sys.executable, "-IS", "-c", GUARD, str(os.getpid()), *arguments]


class Stopped(BaseException):
    """SIGINT or SIGTERM arrived.

    A BaseException, so that no `except Exception` on the way catches it.
    """


@contextmanager
def stop_by_signal() -> Iterator[None]:
    """Raise Stopped for the first SIGINT or SIGTERM; ignore further ones, so that clean-up ends.

    A Stopped that leaves the block becomes a line on stderr and KeyboardInterrupt.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        for each in STOP_SIGNALS:
            # A second Ctrl-C would interrupt the clean-up and leave processes behind.
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    with stop_handler(stop):
        try:
            yield
        except Stopped:
            print("stopped before it was ready", file=sys.stderr)
            raise KeyboardInterrupt from None


def spawn(arguments: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own; its output is appended to the log.

    arguments: program and arguments; no shell reads them. env: its whole environment.
    Raises OSError for a program that cannot be started.
    """
    with log.open("ab") as output:
        # Without a session of its own, Ctrl-C would reach it before we can stop it in order.
        return subprocess.Popen(
            arguments,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def last_lines(log: Path) -> str:
    """The last LAST_LINES lines of a log; bytes that are not UTF-8 are replaced."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-LAST_LINES:])


def without_options(words: Sequence[str], names: Collection[str]) -> list[str]:
    """The command line without these options and their values."""
    remaining: list[str] = []
    is_dropped = False
    for word in words:
        if word.startswith("--"):
            is_dropped = word.partition("=")[0].replace("_", "-") in names
        if not is_dropped:
            remaining.append(word)
    return remaining
