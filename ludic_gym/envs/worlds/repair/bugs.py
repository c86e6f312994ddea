"""Small Python packages, their bugs, the issues that report these, and the judge of a repair.

Expected results never enter the sandbox: a driver there executes the statements of the hidden cases
and reports their outputs, which are compared here. So code of the player can replace the driver,
its library and its report, and cannot make a wrong result right.

Each folder there has the package itself, its visible tests (`tests/`), its hidden cases
(`hidden.txt`) and its hand-made bugs (`bugs.toml`). Mutations of all packages are in
`mutations.json`.
"""

from __future__ import annotations

import doctest
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.core.code import output_of
from ludic_gym.envs.core.levels import in_test
from ludic_gym.sandbox.types import ExecResult, Program

Run = Callable[[Program], ExecResult]
"""Runs a program in a sandbox; its SandboxError is raised."""

REPO = "repo"
# CPU time of a case; the sandbox ends one that waits.
CASE_S = 1
# After these many, the package hardly works: the other cases are not tried.
MOST_TIMEOUTS = 3
TESTS = "python -m unittest discover -s tests"

# Each case runs in a fork, with modules as they are after the import, so that no case depends on
# another one, and a case that never ends costs only itself.
DRIVER = f"""\
import contextlib, io, json, os, signal, sys

with open("job.json") as file:
    job = json.load(file)
os.remove("job.json")
sys.path.insert(0, os.path.join(os.getcwd(), "{REPO}"))
sys.dont_write_bytecode = True

def executed(sources, scope):
    results = []
    for source in sources:
        output, error = io.StringIO(), ""
        with contextlib.redirect_stdout(output):
            try:
                exec(compile(source, "<case>", "single"), scope)
            except Exception as raised:
                error = type(raised).__name__ + (": " + str(raised)) * bool(str(raised))
        results.append((output.getvalue(), error))
    return results

def attempted(sources, scope):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.setitimer(signal.ITIMER_PROF, {CASE_S})
        report = json.dumps(executed(sources, scope))
        with open(writing, "w") as file:
            file.write(report)
        os._exit(0)
    os.close(writing)
    with open(reading, errors="replace") as file:
        report = file.read()
    _, status = os.waitpid(child, 0)
    try:
        return json.loads(report), status
    except ValueError:
        return [], status

scope = {{}}
executed(job["setup"], scope)
reports, timeouts = [], 0
for sources in job["cases"]:
    results = []
    if timeouts < {MOST_TIMEOUTS}:
        results, status = attempted(sources, scope)
        timeouts += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF
    reports.append(results)
print(json.dumps(reports))
"""

VISIBLE = f"""\
import os, sys, unittest
os.chdir("{REPO}")
sys.path[0] = os.getcwd()
sys.dont_write_bytecode = True
unittest.main(module=None, argv=["{TESTS}", "discover", "-s", "tests"])
"""

PROGRAM = f"""\
import os, sys, traceback
os.chdir("{REPO}")
sys.path[0] = os.getcwd()
sys.dont_write_bytecode = True
with open("../program.py") as file:
    source = file.read()
try:
    exec(compile(source, "../program.py", "exec"), {{"__name__": "__main__"}})
except Exception as error:
    # Without the frame of this file.
    traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
    sys.exit(1)
"""


def failures(run: Run, package: Package, files: Mapping[str, str]) -> dict[int, tuple[int, str]]:
    """The hidden cases that fail: number of the first wrong example, and its result.

    files: of the player, by path. Results are texts as `shown_result` makes them.
    """
    # The tests of the player are left out: cases import only the package.
    sources = {path: text for path, text in files.items() if not path.startswith("tests/")}
    cases = [[example.source for example in case] for case in package.cases]
    job = json.dumps({"setup": package.setup, "cases": cases}).encode("utf-8")
    program = Program(source=DRIVER, files={**lay_files(sources), "job.json": job})
    return failures_in(run(program).stdout, package)


def failures_in(report: bytes, package: Package) -> dict[int, tuple[int, str]]:
    """The failing cases by the report of the driver, of which nothing is trusted."""
    try:
        results = json.loads(report)
    except (ValueError, RecursionError):
        results = None
    # The player's code ran beside the driver, and may have printed anything.
    results = results if isinstance(results, list) else []
    failed = {}
    for number, case in enumerate(package.cases):
        report_of_case = results[number] if number < len(results) else None
        for position, example in enumerate(case):
            result = _result(report_of_case, position)
            if result != (example.want, example.error):
                failed[number] = position, shown_result(*result) if result else "no result"
                break
    return failed


def _result(report: object, position: int) -> tuple[str, str] | None:
    """Output and error of an example in the report of a case, None if it has none."""
    if not isinstance(report, list) or position >= len(report):
        return None
    one = report[position]
    if not isinstance(one, list) or len(one) != 2 or not all(isinstance(t, str) for t in one):
        return None
    # As in doctest: of an example that raises, the output before it does not count.
    return "" if one[1] else plain_output(one[0]), plain_output(one[1])


def shown_result(output: str, error: str) -> str:
    """A result for people: the output, or the error."""
    return error or output or "(nothing)"


def tests_output(run: Run, files: Mapping[str, str]) -> str:
    """The output of the tests that are in the files, without times and folders of the machine."""
    text = output_of(run(Program(source=VISIBLE, files=lay_files(files))))
    # Sandboxes have random folders, and times differ: equal runs must have equal outputs.
    text = re.sub(rf'File "[^"\n]*?/{REPO}/', 'File "', text)
    return re.sub(r"(Ran \d+ tests?) in [\d.]+s", r"\1", text)


def program_output(run: Run, files: Mapping[str, str], source: str) -> str:
    """The output of a program that runs in the folder of the files and may import them."""
    program = {"program.py": source.encode("utf-8", "replace")}
    text = output_of(run(Program(source=PROGRAM, files={**lay_files(files), **program})))
    return re.sub(rf'File "[^"\n]*?/({REPO}/|\.\./)?', 'File "', text)


def lay_files(files: Mapping[str, str]) -> dict[str, bytes]:
    """The files in the folder of the sandbox."""
    return {f"{REPO}/{path}": text.encode("utf-8", "replace") for path, text in files.items()}


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
    fails = _mutation_rows()["reported"]
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
        for block in _mutation_rows()["mutations"]
    )


def bug_blocks(name: str) -> list[dict[str, Any]]:
    """The hand-made bugs of a package as written: path, old, new, issue."""
    text = (FOLDER / name / "bugs.toml").read_text(encoding="utf-8")
    blocks: list[dict[str, Any]] = tomllib.loads(text)["bug"]
    return blocks


def broken_files(files: Mapping[str, str], bug: Bug) -> dict[str, str]:
    """The files with the bug in them."""
    return {**files, bug.path: files[bug.path].replace(bug.before, bug.after)}


def _bug(name: str, kind: str, block: Mapping[str, Any], **fields: Any) -> Bug:  # noqa: ANN401
    before, after = whole_lines(package(name).files[block["path"]], block["old"], block["new"])
    return Bug(
        package=name,
        path=block["path"],
        kind=kind,
        before=before,
        after=after,
        issue=block.get("issue", "").strip(),
        **fields,
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
def _mutation_rows() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(MUTATIONS.read_text(encoding="utf-8"))
    return stored


OPENINGS = (
    "The package {name} gives a wrong result.",
    "I use the package {name}, and one of its results surprised me.",
    "There is a bug in {name}: what I get is not what its documentation says.",
    "Since the last release of {name}, this no longer works.",
)


@dataclass(frozen=True, slots=True)
class Task:
    """Bugs of one package, in different files, and the text of the issue."""

    package: str
    bugs: tuple[Bug, ...]
    text: str


def drawn_task(level: str, split: str, rng: np.random.Generator) -> Task:
    """A task of the level whose bugs are all in the split. level, split: see `RepoRepairEnv`."""
    bugs = pick(rng, choices(level, split))
    texts = []
    for bug in bugs:
        if bug.issue:
            texts.append(f"An issue of the package {bug.package}:\n\n{bug.issue}")
        else:
            opening = pick(rng, OPENINGS).format(name=bug.package)
            # With two bugs the wrong result of a statement may be another one.
            texts.append(f"{opening}\n{shown_text(bug, pick(rng, bug.shown), len(bugs) == 1)}")
    return Task(bugs[0].package, bugs, "\n\n".join(texts))


@cache
def choices(level: str, split: str) -> tuple[tuple[Bug, ...], ...]:
    """All combinations of bugs of a level, in a split."""
    reported = [bug for bug in reported_bugs() if in_split(bug, split)]
    mutated = [bug for bug in mutations() if in_split(bug, split)]
    if level == "easy":
        return tuple((bug,) for bug in mutated)
    if level == "medium":
        return tuple((bug,) for bug in reported)
    return tuple(
        (one, other)
        for one in reported
        for other in mutated
        if one.package == other.package
        and one.path != other.path
        # A statement that fails because of the other bug would be no sign of this one.
        and not {shown.case for shown in other.shown} & {*one.fails}
    )


def in_split(bug: Bug, split: str) -> bool:
    """True if the bug belongs to the split."""
    return split == "all" or bug.held_out == (split == "test")


def shown_text(bug: Bug, shown: Shown, with_result: bool) -> str:
    """The statements that lead to a wrong result, and the result that it should be."""
    original = package(bug.package)
    case = original.cases[shown.case]
    sources = [*original.setup, *(one.source for one in case[: shown.example + 1])]
    wrong = f"It gives:\n\n{_indent(shown.result)}\n\n" if with_result else ""
    example = case[shown.example]
    return (
        f"I run this:\n\n{_indent(''.join(sources))}\n\n{wrong}"
        f"The last statement should give:\n\n{_indent(shown_result(example.want, example.error))}"
    )


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.rstrip("\n").split("\n"))
