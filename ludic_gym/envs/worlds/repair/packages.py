"""The packages of RepoRepair: files, hidden cases and hand-made bugs, read from `packages/`.

Each folder there has the package itself, its visible tests (`tests/`), its hidden cases
(`hidden.txt`) and its hand-made bugs (`bugs.toml`). Mutations of all packages are in
`mutations.json`, which `benchmarks/repair_mutations.py` writes.
"""

from __future__ import annotations

import doctest
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ludic_gym.envs.core.levels import in_test

FOLDER = Path(__file__).with_name("packages")
MUTATIONS = Path(__file__).with_name("mutations.json")


@dataclass(frozen=True, slots=True)
class Example:
    """A statement and its true result.

    want: the output, without the line break at its end. error: the type and message of the
    exception that it raises, "" for none.
    """

    source: str
    want: str
    error: str = ""


Case = tuple[Example, ...]
"""Statements that are executed one after the other, in a process of their own."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A failing statement for an issue: numbers of case and example, and its wrong result."""

    case: int
    example: int
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A change of one file that makes at least two hidden cases fail.

    kind: "reported" for a hand-made bug with an issue, else the kind of mutation.
    before, after: lines of the file; `before` is in the original file exactly once.
    issue: a user's report, "" for a mutation, whose issue shows one of `shown`.
    fails: numbers of the hidden cases that fail.
    """

    package: str
    path: str
    kind: str
    before: str
    after: str
    issue: str = ""
    shown: tuple[Shown, ...] = ()
    fails: tuple[int, ...] = ()

    @property
    def held_out(self) -> bool:
        """True if the bug belongs to the split "test"."""
        # By the lines that are repaired, so that two bugs of one line are in the same split.
        return in_test(f"{self.package} {self.path} {self.before}")


@dataclass(frozen=True, slots=True)
class Package:
    """The original files by path, the statements before each hidden case, and the cases."""

    name: str
    files: Mapping[str, str]
    setup: tuple[str, ...]
    cases: tuple[Case, ...]


@cache
def package_names() -> tuple[str, ...]:
    """Names of all packages, sorted."""
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/hidden.txt")))


@cache
def package(name: str) -> Package:
    """A package by name."""
    folder = FOLDER / name
    paths = sorted([*folder.glob(f"{name}/*.py"), *folder.glob("tests/*.py")])
    files = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths
    }
    sessions = (folder / "hidden.txt").read_text(encoding="utf-8").strip().split("\n\n")
    setup, *cases = [examples_in(session) for session in sessions]
    return Package(name, files, tuple(example.source for example in setup), tuple(cases))


def examples_in(session: str) -> Case:
    r"""The statements of a session in the format of doctest.

    >>> examples_in(">>> 1 + 1\n2\n")
    (Example(source='1 + 1\n', want='2', error=''),)
    """
    return tuple(
        Example(
            one.source,
            "" if one.exc_msg else plain_output(one.want.replace("<BLANKLINE>", "")),
            plain_output(one.exc_msg or ""),
        )
        for one in doctest.DocTestParser().get_examples(session + "\n")
    )


def plain_output(text: str) -> str:
    """The text without the white space at the end of its lines, and without its last breaks."""
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n")


@cache
def reported_bugs() -> tuple[Bug, ...]:
    """All hand-made bugs, each with an issue."""
    fails = _stored()["reported"]
    return tuple(
        _bug(name, "reported", block, fails=tuple(fails[name][number]))
        for name in package_names()
        for number, block in enumerate(bug_blocks(name))
    )


@cache
def mutations() -> tuple[Bug, ...]:
    """All mutations."""
    return tuple(
        _bug(
            block["package"],
            block["kind"],
            block,
            shown=tuple(Shown(*one) for one in block["shown"]),
            fails=tuple(block["fails"]),
        )
        for block in _stored()["mutations"]
    )


def bug_blocks(name: str) -> list[dict[str, Any]]:
    """The hand-made bugs of a package as written: path, old, new, issue."""
    text = (FOLDER / name / "bugs.toml").read_text(encoding="utf-8")
    blocks: list[dict[str, Any]] = tomllib.loads(text)["bug"]
    return blocks


def broken(files: Mapping[str, str], bug: Bug) -> dict[str, str]:
    """The files with the bug in them."""
    return {**files, bug.path: files[bug.path].replace(bug.before, bug.after)}


def _bug(name: str, kind: str, block: Mapping[str, Any], **found: Any) -> Bug:  # noqa: ANN401
    before, after = whole_lines(package(name).files[block["path"]], block["old"], block["new"])
    return Bug(
        package=name,
        path=block["path"],
        kind=kind,
        before=before,
        after=after,
        issue=block.get("issue", "").strip(),
        **found,
    )


def whole_lines(text: str, old: str, new: str) -> tuple[str, str]:
    r"""The lines of the text that contain `old`, before and after its replacement by `new`.

    >>> whole_lines("a = 1\nb = 2\n", "2", "3")
    ('b = 2\n', 'b = 3\n')
    """
    start = text.rfind("\n", 0, text.index(old)) + 1
    stop = text.index(old) + len(old)
    # A replaced text may end with its line break.
    end = stop if text[stop - 1] == "\n" else text.index("\n", stop) + 1
    before = text[start:end]
    return before, before.replace(old, new)


@cache
def _stored() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(MUTATIONS.read_text(encoding="utf-8"))
    return stored
