"""The token of a server's control routes, in a file that only the user who started it can read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from ludic_gym.web_pages import LOOPBACK

# The bearer token of all requests, if it is set; the name is vLLM's.
KEY_VARIABLE = "VLLM_API_KEY"


@contextmanager
def issued_token(port: int) -> Iterator[str]:
    """The token of the server at this port, in its file as long as the block runs.

    It is KEY_VARIABLE where that is set, so that trainers on other machines can know it too.
    """
    # Here, because Windows has no such module, and other functions of this file work there.
    import fcntl

    token, path = os.environ.get(KEY_VARIABLE) or secrets.token_urlsafe(24), _path(port)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A file that was left behind may have other permissions.
    path.unlink(missing_ok=True)
    write_private(path, token)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield token
        finally:
            path.unlink(missing_ok=True)


def token_of(url: str) -> str | None:
    """The token of a server that this user started on this machine; None for any other.

    None too where KEY_VARIABLE is set, which clients send.
    """
    parts = urlsplit(url)
    if os.environ.get(KEY_VARIABLE) or parts.hostname not in LOOPBACK or parts.port is None:
        return None
    try:
        with _path(parts.port).open(encoding="utf-8") as file:
            return file.read() if _is_locked(file) else None
    except (FileNotFoundError, PermissionError):
        return None


def _is_locked(file: TextIO) -> bool:
    import fcntl

    # A killed server leaves its file to the next one at its port, but not its lock.
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def write_private(path: Path, text: str) -> None:
    """Write a new file that its owner alone can read. Raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def _path(port: int) -> Path:
    # Not below LUDIC_CACHE, which several users may share.
    root = os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".cache"
    return Path(root) / "ludic" / "servers" / f"{port}.token"
