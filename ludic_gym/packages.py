"""Packages that may be missing, and plug-ins of other packages, imported at their first use."""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from ludic_gym.errors import ConfigError, MissingPackage

# `catch_warnings` and `redirect_stdout` change the whole process and restore what they found, so
# two threads inside them would leave each other's setting behind.
_TURN = threading.RLock()
# Modules of the extra 'train', which its commands import when they run.
TRAIN_PACKAGES = (
    "torch", "transformers", "peft", "safetensors", "matplotlib", "redis", "tomli_w",
)  # fmt: skip
OWN_PACKAGES = ("envs_registry", "ludic_gym", "ludic_train")


def optional(module: str, install: str) -> ModuleType:
    """The module of a package that may be missing.

    module: dotted name, such as "pyarrow.parquet".
    install: argument of `pip install`, such as "ludic-gym[data]".
    Raises MissingPackage with that command if the import fails.
    """
    try:
        # Other packages warn and print at import, which would break `filterwarnings = error`.
        with _TURN, warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return import_module(module)
    # Not ModuleNotFoundError only: an installed package may lack a library of its own.
    except ImportError as error:
        raise MissingPackage(
            f"{module} cannot be imported: pip install '{install}' ({error})"
        ) from error


def find_plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name; nothing is loaded yet.

    group: "ludic.commands", "ludic.policies" or "ludic.tokens".
    """
    return {point.name: point for point in entry_points(group=group)}


def load_plugin(point: EntryPoint) -> Any:  # noqa: ANN401 - the group says what it is
    """The object behind an entry point.

    Raises MissingPackage with the command that installs a missing package.
    """
    with advice_for(point.name):
        return point.load()


@contextmanager
def advice_for(plugin: str, packages: Collection[str] | None = None) -> Iterator[None]:
    """Raise MissingPackage, with the command that installs it, for a package that is missing.

    plugin: its name, for the message. packages: of these only; None for any.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        # A missing module of our own is a bug, and must not be reported as a missing package.
        missing = (error.name or "").split(".")[0]
        if missing in OWN_PACKAGES or (packages is not None and missing not in packages):
            raise
        raise MissingPackage(
            f"{plugin!r} needs {missing}, which is not installed: pip install 'ludic-gym[train]'"
        ) from error


def import_user_module(module: str, spec: str) -> ModuleType:
    """Import the module, which may be in the current folder.

    spec: the user's input, for the message. Raises ConfigError if it cannot be imported.
    """
    # A console script has no current folder in its path, unlike `python -m`.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except (ImportError, SyntaxError) as error:
        why = f"whose import fails: {error}"
        if isinstance(error, ModuleNotFoundError) and module.startswith(error.name or "\n"):
            why = "which is neither installed nor in this folder"
        raise ConfigError(f"{spec!r} names the module {module!r}, {why}") from error
