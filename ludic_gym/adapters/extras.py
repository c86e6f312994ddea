"""Packages that only an adapter needs: imported when it is made, or asked for by name."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType

from ludic_gym.errors import ConfigError


def needed(module: str, *, install: str) -> ModuleType:
    """The module. Raises ConfigError, naming what to install, if it is missing."""
    try:
        with warnings.catch_warnings():
            # What other packages say of their own dependencies at import is no matter of ours.
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"this environment needs {error.name or module}: pip install '{install}'"
        ) from error
