"""Packages of optional extras: imports at their first use, and the commands that install them."""

from __future__ import annotations

import io
import json
import threading
import warnings
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import Distribution, distribution
from types import ModuleType
from urllib.parse import unquote, urlsplit

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
            f"{module} cannot be imported: {install_command(install)} ({error})"
        ) from error


def install_command(package: str) -> str:
    """The command that installs a package, or an extra in the way that Ludic was installed.

    package: a name, or an extra as "ludic-gym[train]": from a clone if Ludic is from one.
    """
    return _install_command(package, distribution("ludic-gym"))


def _install_command(package: str, ludic: Distribution) -> str:
    # The file of the standard "Recording the Direct URL Origin"; a registry leaves none.
    origin = json.loads(ludic.read_text("direct_url.json") or "{}")
    pip = "uv pip" if (ludic.read_text("INSTALLER") or "").strip() == "uv" else "pip"
    name, bracket, extra = package.partition("[")
    if name != "ludic-gym" or "dir_info" not in origin:
        return f"{pip} install '{package}'"
    clone = unquote(urlsplit(origin["url"]).path)
    editable = "-e " if origin["dir_info"].get("editable") else ""
    return f"{pip} install {editable}'{clone}{bracket}{extra}'"
