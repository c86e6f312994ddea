"""Bringing our engine to a vLLM that lives in another environment."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import ludic_vllm

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
