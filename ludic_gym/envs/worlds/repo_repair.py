"""RepoRepair: bugs in small Python packages, judged by hidden tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ludic_gym.envs.core.base import Info, Turn, checked_choice, end, proceed
from ludic_gym.envs.core.code import OUTPUT, SandboxedEnv
from ludic_gym.envs.core.levels import LEVELS, SPLITS, Level, Split
from ludic_gym.envs.tools.calls import FORM, Call, listed, one_call, schemas_of
from ludic_gym.envs.worlds.repair.bugs import (
    Task,
    broken_files,
    drawn_task,
    failures,
    package,
    program_output,
    tests_output,
)
from ludic_gym.errors import SandboxError
from ludic_gym.tools.tool import shorten, tool_schema

# Level -> number of turns.
TURNS: Mapping[str, int] = {"easy": 12, "medium": 16, "hard": 24}
SUBMIT = "submit"
MOST_FILES = 40
MOST_CHARACTERS = 200_000
LONGEST_PATH = 100
PROMPT = """\
You maintain a small Python package. Repair it, so that it does what the issue and its docstrings \
say; hidden tests decide. The tests that you see may pass although there is a bug, and changes of \
tests have no effect.
To call a tool, reply with the call as JSON and nothing else: {form}. Your tools:
{tools}
A reply has one call. You have {turns} turns; call submit when the package is repaired."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of an episode by path, and the tools that work on them.

    A tool returns a text and the folder after it. Raises ValueError for arguments that it cannot
    take.
    """

    files: Mapping[str, str]

    def list_files(self) -> tuple[str, Folder]:
        """List all files with their numbers of lines."""
        lines = [
            f"{path} ({len(text.splitlines())} lines)" for path, text in sorted(self.files.items())
        ]
        return "\n".join(lines), self

    def view_file(self, path: str, first: int = 1, last: int = 10_000) -> tuple[str, Folder]:
        """Show lines of a file with their numbers.

        path: of the file
        first: number of the first line
        last: number of the last line
        """
        lines = self._text(path).splitlines()
        shown = [f"{n}\t{line}" for n, line in enumerate(lines, 1) if first <= n <= last]
        return shorten("\n".join(shown), 2 * OUTPUT) or "(no lines)", self

    def edit_file(self, path: str, old: str, new: str) -> tuple[str, Folder]:
        """Replace a text that occurs exactly once in a file.

        path: of the file
        old: text to replace, with its indentation and without line numbers
        new: text in its place
        """
        text = self._text(path)
        count = text.count(old) if old else 0
        # A text that occurs twice would leave open which place is meant.
        if count != 1:
            raise ValueError(f"the old text occurs {count} times in {path}; it must occur once")
        return self._written(path, text.replace(old, new))

    def write_file(self, path: str, text: str) -> tuple[str, Folder]:
        """Write a file, new or in place of the old one.

        path: of the file, relative, with / between folders
        text: the whole content
        """
        return self._written(path, text)

    def _text(self, path: str) -> str:
        if path not in self.files:
            raise ValueError(f"there is no file {path!r:.{LONGEST_PATH}}; see list_files")
        return self.files[path]

    def _written(self, path: str, text: str) -> tuple[str, Folder]:
        parts = path.split("/")
        if not path.isprintable() or len(path) > LONGEST_PATH or {"", ".", ".."} & {*parts}:
            raise ValueError(f"{path!r:.{LONGEST_PATH}} is no relative path of a file")
        files = {**self.files, path: text}
        # A path that is a file and a folder could not be laid into a sandbox.
        folders = {p.rsplit("/", n)[0] for p in files for n in range(1, p.count("/") + 1)}
        if folders & files.keys():
            raise ValueError(f"{path!r} is a folder, or lies in a file")
        if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_CHARACTERS:
            raise ValueError(f"more than {MOST_FILES} files or {MOST_CHARACTERS} characters")
        return f"wrote {path} ({len(text.splitlines())} lines)", Folder(files)


def run_tests() -> None:
    """Run the tests that you see, by python -m unittest discover -s tests."""


def run_python(source: str) -> None:
    """Run a program in the folder of the package and show its output; it cannot change files.

    source: the program; it may import the package
    """


def submit() -> None:
    """End the task: hidden tests are run on the files."""


FOLDER_TOOLS = ("list_files", "view_file", "edit_file", "write_file")
SCHEMAS = schemas_of(
    # Methods are read off an instance, because `self` is no parameter.
    [*(getattr(Folder({}), name) for name in FOLDER_TOOLS), run_tests, run_python, submit]
)


class RepoRepairEnv(SandboxedEnv):
    """Bugs in small Python packages, repaired with tools for files and tests.

    In the manner of SWE-bench (Jimenez et al. 2024, arXiv:2310.06770), with packages and bugs made
    for this environment: 14 packages of two to four modules, 48 bugs with a user's report, and 450
    mutations whose issue shows a wrong result. Hidden tests are statements that a sandbox
    executes on the final files; their outputs are compared outside of it, so that no code of the
    player can report a success. At least two of them fail because of each bug.

    - Observation: the issue and the names of the files; later the result of each call.
    - Action: a call as JSON, {"name": ..., "arguments": {...}}, alone, in a code block or in
      <tool_call> tags, of list_files, view_file, edit_file, write_file, run_tests, run_python or
      submit. The last turn submits too.
    - Reward: 1 if all hidden tests pass, else 0 (component "tests").
    - Info: "sandbox" in the first info; "illegal" in every step; in the last one "package", and the
      number of hidden tests that "passed" of the "total". If the sandbox fails, the episode is
      truncated, and info["error"] has the reason.

    Args:
        level: "easy" (a mutation of one place; the issue shows a wrong result, 12 turns), "medium"
            (a bug with a user's report, 16 turns) or "hard" (one of each, in two files, 24 turns).
        split: "train" and "test" have no bug and no repaired line in common; one bug in five is in
            "test".
        **options: see `SandboxedEnv`.
    """

    action_tools = tuple(
        tool_schema(name, purpose, schema) for name, (purpose, schema) in SCHEMAS.items()
    )

    def __init__(
        self,
        level: Level = "medium",
        split: Split = "all",
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (SandboxedEnv checks them)
    ) -> None:
        super().__init__(render_mode=render_mode, **options)
        self._level = checked_choice("level", level, LEVELS)
        self._turns = TURNS[level]
        self._split = checked_choice("split", split, SPLITS)
        self._turns_left = self._turns

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Draw a task. Raises NoSandbox if no sandbox works."""
        sandbox = self.sandbox_info()
        self.task: Task = drawn_task(self._level, self._split, self.np_random)
        self._turns_left = self._turns
        self.folder = Folder(self._first_files())
        text = f"{self.task.text}\n\nThe files:\n{self.folder.list_files()[0]}"
        prompt = PROMPT.format(form=FORM, tools=listed(SCHEMAS), turns=self._turns)
        return text, {"system_prompt": prompt, "sandbox": sandbox}

    def turn(self, action: str) -> Turn:
        """Execute the call."""
        self._turns_left -= 1
        call, problem = one_call(action, SCHEMAS)
        try:
            if call.name == SUBMIT and not problem:
                return self._ended("", illegal=False)
            text, illegal = (f"Error: {problem}.", True) if problem else self._executed(call)
            if self._turns_left:
                text = f"{text}\nTurns left: {self._turns_left}"
                return proceed(text, info={"illegal": illegal})
            return self._ended(text, illegal=illegal)
        except SandboxError as error:
            return self.failed(error, {"illegal": bool(problem)}, "tests")

    def _executed(self, call: Call) -> tuple[str, bool]:
        """The result of a valid call, and True if it is an error."""
        if call.name == run_tests.__name__:
            return tests_output(self.run, self.folder.files), False
        if call.name == run_python.__name__:
            return program_output(self.run, self.folder.files, call.arguments["source"]), False
        try:
            text, self.folder = getattr(self.folder, call.name)(**call.arguments)
        except ValueError as error:
            return f"Error: {error}", True
        return text, False

    def _ended(self, text: str, *, illegal: bool) -> Turn:
        original, files = package(self.task.package), self.folder.files
        # Bugs are known to make tests fail: an episode without a change needs no sandbox.
        untouched = files == self._first_files()
        expected = {number for bug in self.task.bugs for number in bug.fails}
        failed = expected if untouched else failures(self.run, original, files).keys()
        total = len(original.cases)
        info: Info = {
            "illegal": illegal,
            "package": original.name,
            "passed": total - len(failed),
            "total": total,
        }
        return end(text, success=not failed, info=info, tests=not failed)

    def _first_files(self) -> Mapping[str, str]:
        """The files with the bugs in them."""
        files = package(self.task.package).files
        for bug in self.task.bugs:
            files = broken_files(files, bug)
        return files

    def picture(self) -> str:
        """The issue, and the files that differ from the start."""
        start = self._first_files()
        changed = [path for path, text in self.folder.files.items() if start.get(path) != text]
        return "\n".join([self.task.text, "", f"Changed: {', '.join(changed) or 'nothing'}"])

    def best_action(self) -> str:
        """The repair of each bug in turn, then a submission."""
        original = package(self.task.package).files
        for bug in self.task.bugs:
            if self.folder.files.get(bug.path) != original[bug.path]:
                repaired = {"path": bug.path, "text": original[bug.path]}
                return Call("write_file", repaired).as_json()
        return Call(SUBMIT, {}).as_json()
