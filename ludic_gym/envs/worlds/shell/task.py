"""Tasks of the terminal, and the machine in which they are played.

A machine's state is the content of its home folder and the working directory. A sandbox gets it,
runs the command, and returns it. So episodes can be copied, stored and replayed, and a checker
works on the final state in another sandbox, in which no process of the player runs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import random_int, random_order
from ludic_gym.sandbox.types import ExecResult, Program

# Of all files of the home folder together.
# It travels into a sandbox and back with each command, as text of 4/3 of its size.
MOST_BYTES = 400_000
COMMAND_S = 20
FILE, FOLDER, LINK = "file", "folder", "link"

# It runs in the sandbox with nothing but the standard library. Paths are relative to the home
# folder. `git` works on a copy of a repository's objects, references and index, without its
# configuration and hooks, which the player may have changed.
DRIVER = """\
import base64, json, os, shutil, signal, stat, subprocess

with open("job.json") as file:
    job = json.load(file)
os.remove("job.json")
base = os.getcwd()
home, cwd_file, output = (os.path.join(base, name) for name in ("home", "cwd", "output"))
env = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", "PAGER": "cat",
       "CWD_FILE": cwd_file, "COMMAND": job["command"], "GIT_CONFIG_NOSYSTEM": "1",
       "GIT_AUTHOR_NAME": "Player", "GIT_AUTHOR_EMAIL": "player@example.org",
       "GIT_COMMITTER_NAME": "Player", "GIT_COMMITTER_EMAIL": "player@example.org",
       "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
       "GIT_EDITOR": "true", "GIT_MERGE_AUTOEDIT": "no"}

def restore():
    os.mkdir(home)
    entries = sorted(job["entries"].items())
    for path, (kind, mode, data) in entries:
        path = os.path.join(home, path)
        if kind == "folder":
            os.makedirs(path, exist_ok=True)
        elif kind == "link":
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(data, path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(base64.b64decode(data))
    for path, (kind, mode, data) in reversed(entries):
        if kind != "link":
            os.chmod(os.path.join(home, path), mode)

def execute(command, stdin, cwd):
    with open(output, "wb") as out:
        try:
            process = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            return str(error), 126
        try:
            process.communicate(stdin.encode(), timeout=job["seconds"])
            code = process.returncode
        except subprocess.TimeoutExpired:
            code = 124
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    with open(output, "rb") as out:
        return out.read(job["most"]).decode(errors="replace"), code

def packed():
    entries, size = {}, 0
    folders = [home]
    while folders:
        folder = folders.pop()
        if folder != home:
            entries[os.path.relpath(folder, home)] = ("folder", mode_of(folder), "")
        os.chmod(folder, 0o700)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                entries[os.path.relpath(path, home)] = ("link", 0, os.readlink(path))
            elif os.path.isdir(path):
                folders.append(path)
            elif os.path.isfile(path):
                mode = mode_of(path)
                os.chmod(path, 0o600)
                size += os.path.getsize(path)
                if size > job["most"]:
                    return None
                with open(path, "rb") as file:
                    data = base64.b64encode(file.read()).decode()
                entries[os.path.relpath(path, home)] = ("file", mode, data)
    return entries

def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)

def git_outputs(number, repository, commands):
    clean = os.path.join(base, "clean", str(number))
    git = os.path.join(home, repository, ".git")
    subprocess.run(["git", "init", "-q", clean], env=env, check=False)
    try:
        for name in ("HEAD", "packed-refs", "index"):
            if os.path.isfile(os.path.join(git, name)):
                shutil.copyfile(os.path.join(git, name), os.path.join(clean, ".git", name))
        for name in ("objects", "refs"):
            if os.path.isdir(os.path.join(git, name)):
                shutil.copytree(os.path.join(git, name), os.path.join(clean, ".git", name),
                                copy_function=shutil.copyfile, dirs_exist_ok=True)
    except OSError as error:
        return [str(error)]
    return [execute(["git", *command], "", clean)[0] for command in commands]

restore()
done = {"output": "", "code": 0, "cwd": job["cwd"], "runs": [], "git": []}
if job["command"]:
    cwd = os.path.join(home, job["cwd"])
    script = "trap 'pwd -P > \\"$CWD_FILE\\"' EXIT; eval \\"$COMMAND\\""
    done["output"], done["code"] = execute(["bash", "-c", script], "",
                                           cwd if os.path.isdir(cwd) else home)
    if os.path.isfile(cwd_file):
        with open(cwd_file, errors="replace") as file:
            inside = os.path.relpath(file.read().rstrip("\\n") or home, home)
        done["cwd"] = "." if inside.startswith("..") else inside
done["runs"] = [execute(command, stdin, home) for command, stdin in job["runs"]]
done["git"] = [git_outputs(number, *one) for number, one in enumerate(job["git"])]
done["entries"] = packed()
print(json.dumps(done))
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link. data: of a file its bytes, of a link its target."""

    kind: str
    mode: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Home:
    """The home folder by relative path, and the working directory in it."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    cwd: str = "."


Run = tuple[tuple[str, ...], str]
"""A command in the home folder, and its stdin."""

Git = tuple[str, tuple[tuple[str, ...], ...]]
"""A repository's folder, and arguments of git."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a job: output and exit code of the command, outputs of runs and of git."""

    home: Home
    output: str
    code: int
    runs: tuple[str, ...] = ()
    git: tuple[tuple[str, ...], ...] = ()


def execute(
    run: Callable[[Program], ExecResult],
    home: Home,
    command: str = "",
    runs: tuple[Run, ...] = (),
    git: tuple[Git, ...] = (),
) -> Outcome:
    """The outcome of a command; if it cannot be kept, the home folder is as before.

    run: runs a program in a sandbox; its SandboxError is raised.
    """
    job = {
        "entries": {path: _written(entry) for path, entry in home.entries.items()},
        "cwd": home.cwd,
        "command": command,
        "runs": runs,
        "git": git,
        "most": MOST_BYTES,
        "seconds": COMMAND_S,
    }
    result = run(Program(source=DRIVER, files={"job.json": json.dumps(job).encode()}))
    try:
        done: dict[str, Any] = json.loads(result.stdout)
        entries = done["entries"]
        if entries is None:
            text = f"The files exceed {MOST_BYTES} bytes; the command is undone."
            return Outcome(home, text, 1)
        files = {path: _read(*entry) for path, entry in entries.items()}
        outputs = tuple(output for output, _ in done["runs"])
        after = Home(files, str(done["cwd"]))
        checks = tuple(tuple(outputs) for outputs in done["git"])
        return Outcome(after, str(done["output"]), int(done["code"]), outputs, checks)
    # The player's processes may have ended the driver, or written in its place.
    except (ValueError, KeyError, TypeError, AttributeError):
        return Outcome(home, f"The command broke its sandbox ({result.ended}); it is undone.", 1)


def _written(entry: Entry) -> tuple[str, int, str]:
    if entry.kind == LINK:
        return entry.kind, entry.mode, entry.data.decode("utf-8", "surrogateescape")
    return entry.kind, entry.mode, base64.b64encode(entry.data).decode()


def _read(kind: str, mode: int, data: str) -> Entry:
    if kind == LINK:
        # Links have no mode of their own on Linux.
        return Entry(kind, 0, data.encode("utf-8", "surrogateescape"))
    return Entry(kind, mode, base64.b64decode(data))


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
    reasons = list[str]()
    # Files of the task that it does not name must be as they were, content and mode.
    moved = {*task.want, *task.absent, *task.free}
    untouched = {path: text for path, text in task.files.items() if path not in moved}
    for path, text in {**untouched, **task.want}.items():
        entry = home.entries.get(path)
        if entry is None or entry.kind != FILE:
            reasons.append(f"{path} is missing")
        elif _plain(entry.data) != _plain(text.encode()):
            reasons.append(f"{path} has another content")
    reasons += [f"{path} still exists" for path in task.absent if path in home.entries]
    modes = {path: task.modes.get(path, MODE) for path in untouched} | dict(task.want_modes)
    for path, mode in modes.items():
        entry = home.entries.get(path)
        # A missing file is a fault of its own above.
        if entry is not None and entry.mode != mode:
            reasons.append(f"{path} has the mode {entry.mode:o}")
    for ((command, _), wanted), output in zip(task.runs, runs, strict=True):
        if output.strip() != wanted.strip():
            reasons.append(f"{' '.join(command)} prints something else")
    for ((repository, _), wanted), output in zip(task.git, git, strict=True):
        if output.strip() != wanted.strip():
            reasons.append(f"the repository {repository} is in another state")
    return reasons


def judge(
    run: Callable[[Program], ExecResult], home: Home, tasks: tuple[Task, ...]
) -> list[list[str]]:
    """The faults of each task. run: see `execute`."""
    reasons = list[list[str]]()
    for task in tasks:
        # Each in a sandbox of its own, and files as they were before: a program of the player can
        # write what it wants in place of the driver, but only about its own output.
        runs, git = tuple(one for one, _ in task.runs), tuple(one for one, _ in task.git)
        outputs = execute(run, home, runs=runs).runs if runs else ()
        states = execute(run, home, git=git).git if git else ()
        # Both are empty where the sandbox was broken.
        outputs = outputs if len(outputs) == len(runs) else ("",) * len(runs)
        states = states if len(states) == len(git) else ((),) * len(git)
        reasons.append(faults(task, home, outputs, tuple(map("\n".join, states))))
    return reasons


def _plain(data: bytes) -> bytes:
    """The content without the line break at its end, which some commands add."""
    return data.rstrip(b"\n")


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Different words."""
    return random_order(rng, WORDS)[:count]


def numbers(rng: np.random.Generator, count: int, low: int = 1, high: int = 99) -> list[int]:
    """Numbers, which may repeat."""
    return [random_int(rng, low, high) for _ in range(count)]


def lines(items: list[str] | list[int]) -> str:
    """The items as lines of a file."""
    return "".join(f"{item}\n" for item in items)


def sentence(rng: np.random.Generator) -> str:
    """A line of three to six words."""
    return " ".join(words(rng, random_int(rng, 3, 6)))
