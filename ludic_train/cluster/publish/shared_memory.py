"""Buffers in shared memory, which other processes map by name and which are used again."""

from __future__ import annotations

import os
import shutil
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import gettempdir, mkdtemp

import torch
from torch import Tensor

from ludic_train.errors import PublishError

PREFIX = "ludic-buffers-"
# Bytes that stay allocated between publications.
KEPT_BYTES = 2**31
# Seconds until a folder without a lock is that of a process which was killed.
ORPHAN_S = 60.0


@dataclass(frozen=True, slots=True)
class SharedBuffer:
    """A buffer, uint8 [bytes], and its file."""

    memory: Tensor
    path: Path


class SharedBuffers:
    """The buffers of one publication after the other, in files of `folder`.

    They are used again, because the kernel clears new memory, which takes longer than a copy. They
    are freed with this object, and those of a process that was killed by the next process of the
    user.
    """

    def __init__(self, folder: Path) -> None:
        self._parent = folder
        # Made for the first buffer.
        self._folder: Path | None = None
        self._numbers = count()
        self._free: list[SharedBuffer] = []
        self._used: list[SharedBuffer] = []

    def buffer(self, size: int) -> Tensor | None:
        """Memory of that many bytes, which no other chunk of the publication has.

        None if all buffers together would have more than KEPT_BYTES.
        Raises PublishError where the file system has no room for it.
        """
        fitting = (each for each in self._free if len(each.memory) == size)
        if found := next(fitting, None):
            self._free.remove(found)
        elif size + sum(len(each.memory) for each in (*self._free, *self._used)) > KEPT_BYTES:
            return None
        else:
            found = self._made(size)
        self._used.append(found)
        return found.memory

    def path(self, memory: Tensor) -> Path | None:
        """The file of a buffer of this publication; None for other memory."""
        return next((each.path for each in self._used if each.memory is memory), None)

    def end(self) -> None:
        """End a publication: its buffers are free for the next one, all others are removed."""
        for each in self._free:
            each.path.unlink(missing_ok=True)
        self._free, self._used = self._used, []

    def _made(self, size: int) -> SharedBuffer:
        try:
            path = self._own_folder() / f"{next(self._numbers)}.bin"
            return SharedBuffer(_mapped(path, size), path)
        except OSError as error:
            raise no_room(size, self._parent, error) from error

    def _own_folder(self) -> Path:
        if self._folder is None:
            _remove_orphans(self._parent)
            # mkdtemp makes a folder of unguessable name that no other user can read.
            self._folder = Path(mkdtemp(prefix=PREFIX, dir=self._parent))
            lock = _locked(self._folder)
            weakref.finalize(self, _remove, self._folder, lock, os.getpid())
        return self._folder


def no_room(size: int, folder: Path | None, error: OSError) -> PublishError:
    """The error of a file system that cannot hold that many bytes."""
    return PublishError(
        f"no room for {size} bytes of params in {folder or gettempdir()} ({error.strerror}): take "
        "TcpWire(), or a FileWire(folder) on a larger file system"
    )


def _mapped(path: Path, size: int) -> Tensor:
    """A new file of that size, as memory. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        # Without it, a write to memory that the file system has no room for ends the process.
        os.posix_fallocate(descriptor, 0, size)
        return torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _locked(folder: Path) -> int:
    """A descriptor that holds the lock of a folder. Raises BlockingIOError if another has it."""
    # Windows has neither this module nor shared memory in files.
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_orphans(parent: Path) -> None:
    """Remove what processes left that were killed: the kernel has released their locks."""
    for folder in parent.glob(f"{PREFIX}*"):
        # Folders of other users cannot be opened, and others may be removed meanwhile.
        with suppress(OSError):
            # A new folder is about to be locked.
            if time.time() - folder.stat().st_mtime > ORPHAN_S:
                _remove(folder, _locked(folder), os.getpid())


def _remove(folder: Path, lock: int, owner: int) -> None:
    """Remove a folder and release its lock. owner: process that may do so, and no fork of it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
