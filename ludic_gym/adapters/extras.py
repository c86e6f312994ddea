"""Packages that only an adapter needs: imported when it is made, or asked for by name."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stdout
from importlib import import_module
from types import ModuleType

from ludic_gym.errors import ConfigError


def needed(module: str, *, install: str) -> ModuleType:
    """The module. Raises ConfigError, naming what to install, if it is missing."""
    try:
        # What other packages say and print at import is no matter of ours.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"this environment needs {error.name or module}: pip install '{install}'"
        ) from error
