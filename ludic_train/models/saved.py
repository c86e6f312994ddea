"""Folder and harness of a saved model, of a run or by itself."""

from __future__ import annotations

from pathlib import Path

from ludic_gym.harness import HARNESS_FILE, Harness, read_harness
from ludic_train.errors import ModelNotFound


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
