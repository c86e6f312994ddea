"""Tasks of Terminal: files before, what must hold after, and words for their content."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ludic_gym.envs.core.base import between, shuffled
from ludic_gym.envs.worlds.shell.machine import FILE, FOLDER, Entry, Git, Home, Run, executed
from ludic_gym.sandbox.types import ExecResult, Program

WORDS = (
    "amber", "birch", "cedar", "delta", "eagle", "flint", "grape", "hazel", "ivory", "jade",
    "koala", "lemon", "maple", "north", "olive", "pearl", "quail", "river", "stone", "tulip",
    "umber", "viola", "wheat", "yield", "zebra", "acorn", "brook", "cloud", "dune", "frost",
)  # fmt: skip
# Of files that a task does not speak about.
MODE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task in a folder of its own.

    text: the task in words. files: path -> content, before. modes: of those that are not 644.
    setup: commands that complete the start, such as a git history.
    want: path -> content of files that must exist at the end; absent: paths that must not.
    want_modes: of files and folders at the end. free: files that may change in any way.
    runs: commands, each with stdin and the output that it must have.
    git: repository, arguments of git, and the output that it must have.
    solution: commands that do the task.
    All other files must be as they were.
    """

    text: str
    files: Mapping[str, str]
    solution: str
    modes: Mapping[str, int] = field(default_factory=dict)
    setup: str = ""
    want: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    want_modes: Mapping[str, int] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    runs: tuple[tuple[Run, str], ...] = ()
    git: tuple[tuple[Git, str], ...] = ()


def home_of(tasks: tuple[Task, ...]) -> Home:
    """The home folder at the start, before the setups."""
    entries: dict[str, Entry] = {}
    for task in tasks:
        for path, text in task.files.items():
            parts = path.split("/")
            for depth in range(1, len(parts)):
                entries["/".join(parts[:depth])] = Entry(FOLDER, 0o755)
            entries[path] = Entry(FILE, task.modes.get(path, MODE), text.encode())
    return Home(entries)


def faults(task: Task, home: Home, runs: tuple[str, ...], git: tuple[str, ...]) -> list[str]:
    """Reasons why a task is not done at its end; [] if it is.

    runs, git: outputs of the task's `runs` and `git`, from a checker's sandbox.
    """
    found = list[str]()
    # Files of the task that it does not name must be as they were, content and mode.
    moved = {*task.want, *task.absent, *task.free}
    kept = {path: text for path, text in task.files.items() if path not in moved}
    for path, text in {**kept, **task.want}.items():
        entry = home.entries.get(path)
        if entry is None or entry.kind != FILE:
            found.append(f"{path} is missing")
        elif _plain(entry.data) != _plain(text.encode()):
            found.append(f"{path} has another content")
    found += [f"{path} still exists" for path in task.absent if path in home.entries]
    modes = {path: task.modes.get(path, MODE) for path in kept} | dict(task.want_modes)
    for path, mode in modes.items():
        entry = home.entries.get(path)
        # A missing file is a fault of its own above.
        if entry is not None and entry.mode != mode:
            found.append(f"{path} has the mode {entry.mode:o}")
    for ((command, _), wanted), output in zip(task.runs, runs, strict=True):
        if output.strip() != wanted.strip():
            found.append(f"{' '.join(command)} prints something else")
    for ((repository, _), wanted), output in zip(task.git, git, strict=True):
        if output.strip() != wanted.strip():
            found.append(f"the repository {repository} is in another state")
    return found


def judged(
    run: Callable[[Program], ExecResult], home: Home, tasks: tuple[Task, ...]
) -> list[list[str]]:
    """The faults of each task. run: see `executed`."""
    found = list[list[str]]()
    for task in tasks:
        # Each in a sandbox of its own, and files as they were before: a program of the player can
        # write what it wants in place of the driver, but only about its own output.
        runs, git = tuple(one for one, _ in task.runs), tuple(one for one, _ in task.git)
        outputs = executed(run, home, runs=runs).runs if runs else ()
        states = executed(run, home, git=git).git if git else ()
        # Both are empty where the sandbox was broken.
        outputs = outputs if len(outputs) == len(runs) else ("",) * len(runs)
        states = states if len(states) == len(git) else ((),) * len(git)
        found.append(faults(task, home, outputs, tuple(map("\n".join, states))))
    return found


def _plain(data: bytes) -> bytes:
    """The content without the line break at its end, which some commands add."""
    return data.rstrip(b"\n")


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Different words."""
    return shuffled(rng, WORDS)[:count]


def numbers(rng: np.random.Generator, count: int, low: int = 1, high: int = 99) -> list[int]:
    """Numbers, which may repeat."""
    return [between(rng, low, high) for _ in range(count)]


def lines(items: list[str] | list[int]) -> str:
    """The items as lines of a file."""
    return "".join(f"{item}\n" for item in items)


def sentence(rng: np.random.Generator) -> str:
    """A line of three to six words."""
    return " ".join(words(rng, between(rng, 3, 6)))
