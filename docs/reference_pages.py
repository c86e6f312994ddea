"""Pages of the API reference, made from the stubs `ludic_gym/__init__.pyi` and `ludic_train`'s."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {"ludic_gym": "lg", "ludic_train": "lt"}
# Titles in the field's words, where the name of the module is not one already.
TITLES = {
    "audit": "Audits",
    "bench": "Benchmarks",
    "data": "Datasets",
    "envs": "Environment base classes",
    "inference": "Local engine",
    "pipeline": "Asynchronous training",
    "rollout": "Rollouts",
    "rows": "Rows of tokens",
    "runs": "Training runs",
    "sandbox": "Sandboxes",
    "testing": "Contract checks",
    "vector": "Vectorized environments",
    "view": "HTML views",
}
PAGE = """\
# {title}

`import {package} as {short}`: every name of this page is an attribute of `{short}`.
"""
NAME = """\
::: {path}
    options:
      heading_level: 2
"""
INDEX = """\
# {package}

`import {package} as {short}` gives every name below. A name is imported from its module at its
first use.
"""


def public_names(package: str) -> list[tuple[str, str]]:
    """(module, name) of each public name, in the stub's order."""
    tree = ast.parse((ROOT / package / "__init__.pyi").read_text(encoding="utf-8"))
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return [(f"{package}.{node.module}", alias.name) for node in nodes for alias in node.names]


def topics(package: str) -> dict[str, list[tuple[str, str]]]:
    """Public names by the first part of their module: a page each."""
    found: dict[str, list[tuple[str, str]]] = {}
    for module, name in public_names(package):
        found.setdefault(module.split(".")[1], []).append((module, name))
    return found


def title(topic: str) -> str:
    """Title of the topic's page."""
    return TITLES.get(topic, topic.capitalize())


def titles(package: str) -> list[tuple[str, str]]:
    """Title and path of every topic's page, by title."""
    return sorted((title(topic), f"reference/{package}/{topic}.md") for topic in topics(package))


def pages() -> Iterator[tuple[str, str]]:
    """Path and text of every page of this part of the reference."""
    for package, short in PACKAGES.items():
        yield f"reference/{package}/index.md", index(package, short)
        for topic, names in topics(package).items():
            head = PAGE.format(title=title(topic), package=package, short=short)
            entries = (NAME.format(path=f"{module}.{name}") for module, name in names)
            yield f"reference/{package}/{topic}.md", "\n".join([head, *entries])


def index(package: str, short: str) -> str:
    """A table of the names of each topic, with the first line of their docstrings."""
    parts = [INDEX.format(package=package, short=short)]
    for topic, names in sorted(topics(package).items(), key=lambda pair: title(pair[0])):
        rows = "".join(_row(short, module, name) for module, name in names)
        parts.append(f"## [{title(topic)}]({topic}.md)\n\n| name | |\n|---|---|\n{rows}")
    return "\n".join(parts)


def _row(short: str, module: str, name: str) -> str:
    summary = summaries(module).get(name, "").replace("|", "\\|").replace("<", "&lt;")
    return f"| [`{short}.{name}`][{module}.{name}] | {summary} |\n"


@cache
def summaries(module: str) -> dict[str, str]:
    """First line of the docstring of each class and function of the module."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    found = {node.name: ast.get_docstring(node) for node in nodes if isinstance(node, kinds)}
    return {name: text.splitlines()[0] for name, text in found.items() if text}
