"""A container image made of this machine's Python and the libraries that it loads.

    python tests/python_image.py | podman import - python:3.11-slim

For machines without an image registry: it stands in for the image of that name, and holds /bin/sh
and a few commands more than Python.
"""

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

COMMANDS = ("sh", "env", "cat", "sleep", "true")
USELESS = re.compile(r"site-packages|__pycache__|/test/|/tests/|idlelib|\.a$|/include/|/share/")
PREFIX = Path(sys.base_prefix).resolve()


def libraries(files: list[Path]) -> set[str]:
    """Paths of the libraries that programs and libraries load, the loader among them."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False)
    return set(re.findall(r"(/\S+) \(0x", done.stdout))


def contents() -> Iterator[tuple[str, str]]:
    """Pairs (path in the image, path here)."""
    python = [
        path for path in PREFIX.rglob("*") if path.is_file() and not USELESS.search(f"{path}")
    ]
    commands = [path for path in map(shutil.which, COMMANDS) if path]
    binaries = [path for path in python if path.suffix == ".so" or path.parent.name == "bin"]
    for path in python:
        yield f"usr/local/{path.relative_to(PREFIX)}", str(path)
    for path in libraries([*binaries, *map(Path, commands)]):
        yield path.lstrip("/"), path
    for path in commands:
        yield f"bin/{Path(path).name}", path


def main() -> None:
    """Write the image's files to stdout, as a tar archive."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", dereference=True) as archive:
        for target, source in dict(contents()).items():
            archive.add(source, target)
        for name in ("tmp", "proc", "sys", "dev", "etc", "var/tmp", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if "tmp" in name else 0o755
            archive.addfile(folder)


if __name__ == "__main__":
    main()
