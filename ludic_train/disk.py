"""Failures of a disk, or of a folder that cannot be written, as errors of our own."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from ludic_gym.errors import LudicError
from ludic_train.errors import DiskError

Errors = tuple[type[Exception], ...]
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
# Errors that only a file can have; other numbers, such as EACCES, belong to sockets too.
OF_FILES = FULL | {errno.EROFS, errno.EIO, errno.ESTALE}


def disk_failure(path: Path, error: Exception) -> str:
    """Message for an error of writing at `path`: the reason, and the remedy."""
    number = _number(error)
    if number in FULL:
        remedy = "make room there"
    elif number in READ_ONLY:
        remedy = "make it writable, or name another folder"
    else:
        remedy = "a folder that can be written is needed there"
    reason = error if number is None else os.strerror(number)
    return f"cannot write {path}: {reason}; {remedy}"


@contextmanager
def writing(path: Path, kind: type[LudicError], others: Errors = ()) -> Iterator[None]:
    """Turn each OSError of a block that writes to `path` into `kind`, with the remedy.

    others: further errors of writing, such as SafetensorError; their package takes long to import.
    """
    errors: Errors = (OSError, *others)
    try:
        yield
    except errors as error:
        raise kind(disk_failure(path, error)) from error


@contextmanager
def running_in(folder: Path, others: Errors = ()) -> Iterator[None]:
    """Turn errors of files in a run's folder into DiskError.

    others: as of `writing`. Errors of sockets, and of files in other folders, pass.
    """
    errors: Errors = (OSError, *others)
    try:
        yield
    except errors as error:
        # A write to a file that is open names none.
        named = getattr(error, "filename", None)
        path = Path(named) if isinstance(named, str | os.PathLike) else None
        inside = path is not None and path.absolute().is_relative_to(folder.absolute())
        if not inside and (path is not None or _number(error) not in OF_FILES):
            raise
        text = disk_failure(path or folder, error)
        raise DiskError(f"{text}, then resume the run from its last checkpoint") from error


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all bytes to a file without a buffer. Raises OSError."""
    # A disk that gets full takes a part first, and raises no error for it.
    while data:
        data = data[file.write(data) :]


def _number(error: Exception) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    # Its text alone has the number.
    match = re.search(r"os error (\d+)", str(error))
    return int(match[1]) if match else None
