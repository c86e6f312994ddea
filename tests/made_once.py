"""Folders for tests that one xdist worker fills and all workers read."""

import os
import shutil

from filelock import FileLock


def made_once(tmp_path_factory, name, make):
    """Path of the folder `name`, filled by `make(folder)` in the first test that asks for it.

    Tests must not change its files.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with FileLock(root / f"{name}.lock"):
        if not done.exists():
            # Another worker may have failed half-way.
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.touch()
    return folder
