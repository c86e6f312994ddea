"""Plug-ins of other packages: objects behind entry points, loaded at their first use."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from ludic_gym.errors import ConfigError, MissingPackage

# Modules of the extra 'train', which its commands import when they run.
TRAIN_PACKAGES = (
    "torch", "transformers", "peft", "safetensors", "matplotlib", "redis", "tomli_w", "zstandard",
)  # fmt: skip
OWN_PACKAGES = ("envs_registry", "ludic_gym", "ludic_train")


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
        # Imported here: `ludic --help` misses nothing.
        from ludic_gym.extras import install_command

        raise MissingPackage(
            f"{plugin!r} needs {missing}, which is not installed: "
            f"{install_command('ludic-gym[train]')}"
        ) from error


def imported(module: str, spec: str) -> ModuleType:
    """Import the module, which may be in the current folder.

    spec: the user's input, for the message. Raises ConfigError if it cannot be imported.
    """
    # A console script has no current folder in its path, unlike `python -m`.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(module)
    except (ImportError, SyntaxError) as error:
        raise ConfigError(_why_not_imported(spec, module, error)) from error


def _why_not_imported(spec: str, module: str, error: ImportError | SyntaxError) -> str:
    if isinstance(error, ModuleNotFoundError) and module.startswith(error.name or "\n"):
        return (
            f"{spec!r} names the module {module!r}, which is neither installed nor in this folder"
        )
    return f"{spec!r} names the module {module!r}, whose import fails: {error}"
