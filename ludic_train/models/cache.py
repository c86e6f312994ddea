"""Folders of models: of Ludic's own, which `ludic model` makes and caches, of runs, of the hub."""

from __future__ import annotations

import os
from pathlib import Path

from ludic_gym.harness import HARNESS_FILE, Harness, read_harness
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


def hub_folder(name: str) -> Path:
    """The folder of a model of the Hugging Face hub that has been downloaded.

    Raises ModelNotFound, with the command that downloads it, for one that has not.
    """
    # Imported here: other names need no hub.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(
            f"{name!r} is neither a folder nor in the cache of the Hugging Face hub; to download "
            f"it: hf download {name}"
        ) from error


def model_and_harness(path: str | Path) -> tuple[Path, Harness]:
    """Folder of the model and the harness it was trained with, of a run folder or a model's own.

    Raises ModelNotFound for a folder that is neither.
    """
    path = Path(path)
    # Without its harness, the model of a run would be prompted in another way than it was trained.
    if (path / "model").is_dir():
        if not (path / HARNESS_FILE).is_file():
            raise ModelNotFound(f"{str(path)!r} has a model/ but no {HARNESS_FILE}")
        return path / "model", read_harness(path)
    if any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        return path, Harness()
    raise ModelNotFound(
        f"{str(path)!r} is no run folder, with model/ and {HARNESS_FILE}, nor a model in Hugging "
        "Face format, with config.json"
    )
