"""Models by the names of Ludic's own, which `ludic model` makes and keeps in a cache folder."""

from __future__ import annotations

import os
from pathlib import Path

from ludic_train.errors import ModelNotFound

# Names of the models, and the arguments of `ludic model` that make them.
OWN_MODELS = {"ludic-small": "", "ludic-tiny": " --size tiny"}


def cache_folder(name: str) -> Path:
    """Folder of one of `OWN_MODELS`, made or not, below LUDIC_CACHE or ~/.cache/ludic."""
    root = os.environ.get("LUDIC_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "ludic") / "models" / name


def resolved(name: str | Path) -> str | Path:
    """The cached folder of one of `OWN_MODELS`; any other name as it is.

    Raises ModelNotFound, with the command that makes it, for a model that is not cached.
    """
    if not isinstance(name, str) or name not in OWN_MODELS:
        return name
    folder = cache_folder(name)
    if not (folder / "config.json").is_file():
        raise ModelNotFound(
            f"{name} is not in {str(folder.parent)!r}; make it with: ludic model{OWN_MODELS[name]}"
        )
    return folder
