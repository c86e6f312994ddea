"""Imports of packages that only an adapter requires."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout
from importlib import import_module
from types import ModuleType

from ludic_gym.errors import ConfigError


def needed(module: str, *, install: str) -> ModuleType:
    """Import the module. Raises ConfigError with the command to install it, if it is missing."""
    try:
        # Other packages warn and print at import, which would break `filterwarnings = error`.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"this environment needs {error.name or module}: pip install '{install}'"
        ) from error
