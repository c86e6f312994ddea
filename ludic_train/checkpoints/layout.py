"""Names of checkpoints on disk."""

from __future__ import annotations

import re
from pathlib import Path

INCOMPLETE = ".incomplete"
STATE = "state.json"
_COMPLETE_NAME = re.compile(r"step_(\d{8,})")


def folder_name(update: int) -> str:
    """Folder of the checkpoint of an update, complete."""
    return f"step_{update:08d}"


def complete_updates(directory: Path) -> list[int]:
    """Updates with a complete checkpoint in the directory, ascending."""
    if not directory.is_dir():
        return []
    names = (_COMPLETE_NAME.fullmatch(path.name) for path in directory.iterdir())
    found = (int(name[1]) for name in names if name)
    return sorted(n for n in found if (directory / folder_name(n) / STATE).is_file())
