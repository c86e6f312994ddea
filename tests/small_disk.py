"""A disk of some megabytes that tests may fill, or make read-only."""

import shutil
import subprocess

import pytest


class SmallDisk:
    """A tmpfs at `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self):
        with self._filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(2**16)):
                    pass
            except OSError:
                return

    def make_read_only(self):
        mount("-o", "remount,ro", self.folder)

    def mend(self):
        mount("-o", "remount,rw", self.folder)
        self._filler.unlink(missing_ok=True)


def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True, capture_output=True, timeout=30)


def small_disk(folder):
    """Yield a SmallDisk at a new folder, and unmount it; skip the test where none can be."""
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no program `mount` here")
    try:
        mount("-t", "tmpfs", "-o", "size=8m", "tmpfs", folder)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no tmpfs can be mounted here: {error.stderr.decode().strip()}")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)
