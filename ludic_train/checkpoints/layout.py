"""Names of checkpoints on disk, and files that survive a crash of the machine; no torch here."""

from __future__ import annotations

import os
import re
from pathlib import Path

INCOMPLETE = ".incomplete"
STATE = "state.json"
# Files of `save_shards`, in a checkpoint's model folder; params in them stand under PARAM.
SHARDS, PARAM = "shards", "param/"
_COMPLETE_NAME = re.compile(r"step_(\d{8,})")


def folder_name(update: int) -> str:
    """Folder of the checkpoint of an update, complete.

    >>> folder_name(20)
    'step_00000020'
    """
    return f"step_{update:08d}"


def complete_updates(directory: Path) -> list[int]:
    """Updates with a complete checkpoint in the directory, ascending."""
    if not directory.is_dir():
        return []
    names = (_COMPLETE_NAME.fullmatch(path.name) for path in directory.iterdir())
    updates = (int(name[1]) for name in names if name)
    # The state is written last, so its presence tells a whole folder from one copied halfway.
    return sorted(n for n in updates if (directory / folder_name(n) / STATE).is_file())


def sync_to_disk(path: Path) -> None:
    """Return when the content of the file or folder is on disk and not only in a cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
