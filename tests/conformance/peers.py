"""Modules of other trainers, imported without what their packages need beside one formula."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import typing
from importlib.machinery import ModuleSpec

import typing_extensions

# Imported by the packages, called by none of the functions that are compared.
ABSENT = {"deepspeed", "flash_attn"}
# pydantic refuses the standard one before Python 3.12.
typing.TypedDict = typing_extensions.TypedDict  # type: ignore[attr-defined]


class Absent(types.ModuleType):
    """A module whose every attribute is an empty class."""

    __path__: typing.ClassVar[list[str]] = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class AbsentFinder:
    """Finder of the packages that are not installed on purpose."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


def alone(name):
    """The module of a dotted name; the packages around it are left empty."""
    first, *rest = name.split(".")[:-1]
    if first in sys.modules:
        return importlib.import_module(name)
    (root,) = importlib.util.find_spec(first).submodule_search_locations
    for depth in range(len(rest) + 1):
        package = types.ModuleType(".".join([first, *rest[:depth]]))
        package.__path__ = ["/".join([root, *rest[:depth]])]
        sys.modules[package.__name__] = package
    return importlib.import_module(name)


sys.meta_path.append(AbsentFinder())
