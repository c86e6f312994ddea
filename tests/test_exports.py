"""Public names of the two packages: each is found once, in the module that the stub names."""

import ast
import importlib
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ["ludic_gym", "ludic_train"]


def stub_names(package):
    """(module, name) of each line of the package's `__init__.pyi`."""
    tree = ast.parse((ROOT / package / "__init__.pyi").read_text())
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [(node.module, alias.name) for node in nodes for alias in node.names]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists_and_no_module_hides_it(package):
    if package == "ludic_train" and find_spec("torch") is None:
        pytest.skip("ludic_train needs torch: pip install 'ludic-gym[train]'")
    shown = importlib.import_module(package)
    names = [name for _, name in stub_names(package)]
    assert sorted(shown.__all__) == sorted(set(names)) == sorted(names)
    for module, name in stub_names(package):
        found = getattr(importlib.import_module(f"{package}.{module}"), name)
        assert getattr(shown, name) is found
    assert not set(names) & {path.stem for path in (ROOT / package).iterdir()}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_inside_hold_no_names_of_their_own(package):
    for path in (ROOT / package).glob("*/**/__init__.py"):
        body = ast.parse(path.read_text()).body
        # Packages that environments are played with are data.
        data = path.parent.name == "inside" or "packages" in path.parts
        assert data or all(isinstance(node, ast.Expr) for node in body)


def test_every_entry_point_names_something_that_exists():
    project_table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tables = [project_table["scripts"], *project_table["entry-points"].values()]
    for target in (target for table in tables for target in table.values()):
        if target.startswith("ludic_train"):
            pytest.importorskip("torch")
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), target
