"""The pointer to the params that a run published last, in its folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from ludic_train.errors import PublishError

NEWEST, PARAMS = "newest.json", "params.safetensors"


@dataclass(frozen=True, slots=True)
class Published:
    """A version of the params, and the folder that holds them."""

    version: int
    path: Path


def newest(folder: Path | str) -> Published | None:
    """What was published last, None if nothing was yet. Raises PublishError for another file."""
    pointer = Path(folder) / NEWEST
    try:
        found = json.loads(pointer.read_text())
        name = os.path.basename(str(found["folder"]))
        return Published(int(found["version"]), Path(folder) / name)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise PublishError(f"{pointer} names no published version: {error!r}") from error
