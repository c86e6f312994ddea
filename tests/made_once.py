"""Folders for tests that one xdist worker fills and all workers read."""

import fcntl
import os
import shutil


def made_once(tmp_path_factory, name, make):
    """Path of the folder `name`, filled by `make(folder)` in the first test that asks for it.

    Tests must not change its files.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            # Another worker may have failed half-way.
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.touch()
        # A process that was forked meanwhile would hold it on.
        fcntl.flock(lock, fcntl.LOCK_UN)
    return folder
