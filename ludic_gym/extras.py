"""Packages of optional extras, imported at their first use."""

from __future__ import annotations

import io
import threading
import warnings
from contextlib import redirect_stdout
from importlib import import_module
from types import ModuleType

from ludic_gym.errors import MissingPackage

# `catch_warnings` and `redirect_stdout` change the whole process and restore what they found, so
# two threads inside them would leave each other's setting behind.
_TURN = threading.RLock()


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
