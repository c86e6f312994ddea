"""What takes long to make is made by one worker, and used by all."""

import os
import shutil

from filelock import FileLock


def made_once(tmp_path_factory, name, make):
    """The folder that `make(folder)` has filled in this run of the tests; nobody changes it."""
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
