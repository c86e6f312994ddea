"""What a package shows is what it says it shows."""

import importlib
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = [
    ".".join(path.parent.relative_to(ROOT).parts)
    for top in ("envs_registry", "ludic_gym", "ludic_train", "ludic_vllm")
    for path in sorted((ROOT / top).rglob("__init__.py"))
]


def package(name: str) -> ModuleType:
    """The imported package; a test of one that needs torch is skipped where there is none."""
    if name.startswith("ludic_train") and find_spec("torch") is None:
        pytest.skip("ludic_train needs torch: pip install 'ludic-gym[train]'")
    return importlib.import_module(name)


def shown(module: ModuleType) -> set[str]:
    """Public names that are neither submodules nor `from __future__` flags."""
    names = {name for name in dir(module) if not name.startswith("_")}
    values = {name: getattr(module, name) for name in names}
    hidden = {n for n, v in values.items() if isinstance(v, ModuleType) or n == "annotations"}
    return names - hidden


def reading_order(name: str) -> tuple[bool, bool, str]:
    """CONSTANTS, then Classes, then functions: the order ruff's RUF022 keeps."""
    return (not name.isupper(), not name[0].isupper(), name)


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_what_is_shown(name):
    module = package(name)
    assert set(getattr(module, "__all__", [])) - {"__version__"} == shown(module)


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted(name):
    names = [n for n in getattr(package(name), "__all__", []) if n != "__version__"]
    assert names == sorted(names, key=reading_order)
