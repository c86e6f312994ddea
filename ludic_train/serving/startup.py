"""Where a server listens."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import ludic_vllm
from ludic_gym.errors import ConfigError


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket with that address, 0 for any free port. Raises ConfigError where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    # As a server does: a port whose last connections are still closing can be taken.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"cannot listen on {host}:{port} ({error.strerror}): take another --port, 0 for any "
            "that is free"
        ) from error
    return bound


def url_of(host: str, port: int) -> str:
    """How this machine reaches a server that listens there."""
    written = f"[{host}]" if ":" in host else host
    reached = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(written, written)
    return f"http://{reached}:{port}"


class Stopped(BaseException):
    """SIGINT or SIGTERM came."""


@contextmanager
def stop_by_signal() -> Iterator[None]:
    """Both signals raise Stopped, once: while things are being closed, they wait.

    Who does not catch it gets a line, and KeyboardInterrupt.
    """

    def stop(signum: int, frame: object) -> None:
        for each in usual:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    usual = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in usual:
        signal.signal(each, stop)
    try:
        yield
    except Stopped:
        print("stopped before it was ready", file=sys.stderr)
        raise KeyboardInterrupt from None
    finally:
        for each, handler in usual.items():
            signal.signal(each, handler)


ENTRY_POINTS = "[vllm.general_plugins]\nludic = ludic_vllm:register\n"

METADATA = "Metadata-Version: 2.1\nName: ludic-vllm-plugin\nVersion: 0\n"


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
