"""Tasks of Terminal about permissions."""

from __future__ import annotations

import numpy as np

from ludic_gym.envs.core.base import pick, shuffled
from ludic_gym.envs.worlds.shell.task import MODE, Task, lines, sentence, words

# Ending, mode, and the mode in words.
BY_ENDING = (
    ("sh", 0o755, "can be read and executed by everybody and written by their owner (mode 755)"),
    ("key", 0o600, "can be read and written by their owner and by nobody else (mode 600)"),
    ("cfg", 0o444, "can be read by everybody and written by nobody (mode 444)"),
    ("md", 0o664, "can be written by their owner and group and read by everybody (mode 664)"),
    ("db", 0o640, "can be written by their owner, read by the group, and no more (mode 640)"),
)


def by_ending(folder: str, rng: np.random.Generator) -> Task:
    """Set the mode of files of an ending."""
    (ending, mode, text), (other, _, _) = shuffled(rng, BY_ENDING)[:2]
    names = words(rng, 8)
    paths = [f"{folder}/{name}.{(ending, other)[i % 2]}" for i, name in enumerate(names)]
    chosen = paths[::2]
    return Task(
        text=f"Set the permissions of the files in the folder {folder} whose names end in "
        f".{ending}, so that they {text}.",
        files={path: sentence(rng) + "\n" for path in paths},
        solution=f"chmod {mode:o} ~/{folder}/*.{ending}",
        want_modes=dict.fromkeys(chosen, mode),
    )


def tree(folder: str, rng: np.random.Generator) -> Task:
    """Set the modes of all files and folders."""
    a, b, *names = words(rng, 7)
    paths = [f"{folder}/{(a, f'{a}/{b}')[i % 2]}/{name}" for i, name in enumerate(names)]
    file_mode, folder_mode = pick(rng, ((0o640, 0o750), (0o600, 0o700), (0o444, 0o555)))
    return Task(
        text=f"Below the folder {folder}/{a}, give all files the mode {file_mode:o} and all "
        f"folders, {folder}/{a} too, the mode {folder_mode:o}.",
        files={path: sentence(rng) + "\n" for path in paths},
        solution=f"find ~/{folder}/{a} -type f -exec chmod {file_mode:o} {{}} +; "
        f"find ~/{folder}/{a} -depth -type d -exec chmod {folder_mode:o} {{}} +",
        want_modes=dict.fromkeys(paths, file_mode)
        | dict.fromkeys((f"{folder}/{a}", f"{folder}/{a}/{b}"), folder_mode),
    )


def _listing(folder: str, rng: np.random.Generator, text: str, mode: int, test: str) -> Task:
    """A list of the files with a mode."""
    names = words(rng, 9)
    modes = {name: mode if i % 3 == 0 else MODE for i, name in enumerate(names)}
    chosen = sorted(name for name in names if modes[name] == mode)
    return Task(
        text=f"Write the names of the files in the folder {folder}/in that {text} to "
        f"{folder}/list.txt, one in each line, in alphabetical order. Change no permissions.",
        files={f"{folder}/in/{name}": sentence(rng) + "\n" for name in names},
        modes={f"{folder}/in/{name}": found for name, found in modes.items()},
        solution=f"cd ~/{folder}/in; find . -type f -perm {test} -printf '%f\\n' | sort > "
        "../list.txt",
        want={f"{folder}/list.txt": lines(chosen)},
    )


def writable(folder: str, rng: np.random.Generator) -> Task:
    """List what everybody can write."""
    return _listing(folder, rng, "everybody can write", pick(rng, (0o666, 0o646)), "-o=w")


def executable(folder: str, rng: np.random.Generator) -> Task:
    """List what the owner can execute."""
    return _listing(folder, rng, "their owner can execute", pick(rng, (0o755, 0o744)), "-u=x")


def private(folder: str, rng: np.random.Generator) -> Task:
    """List what only the owner can read."""
    return _listing(folder, rng, "nobody but their owner can read", 0o600, "600")


def _change(
    folder: str, rng: np.random.Generator, text: str, old: int, new: int, command: str
) -> Task:
    """Another mode for the files that have a mode."""
    names = words(rng, 8)
    paths = [f"{folder}/{name}" for name in names]
    return Task(
        text=f"{text.format(folder=folder)} Leave all other files as they are.",
        files={path: sentence(rng) + "\n" for path in paths},
        modes=dict.fromkeys(paths[::2], old),
        solution=f"cd ~/{folder}; {command}",
        want_modes=dict.fromkeys(paths[::2], new),
    )


def no_execute(folder: str, rng: np.random.Generator) -> Task:
    """Take away the right to execute."""
    text = "Some files in the folder {folder} can be executed. Let nobody execute them any more."
    return _change(folder, rng, text, 0o755, 0o644, "chmod a-x *")


def no_others(folder: str, rng: np.random.Generator) -> Task:
    """Take away the right of others to write."""
    text = "Take away the right to write from everybody but the owner for all files in {folder}."
    return _change(folder, rng, text, 0o666, 0o644, "chmod go-w *")


def readable(folder: str, rng: np.random.Generator) -> Task:
    """Give back the right to read."""
    text = "Some files in {folder} cannot be read by anybody. Give all files there the mode 644."
    return _change(folder, rng, text, 0o000, 0o644, "chmod 644 *")


def as_model(folder: str, rng: np.random.Generator) -> Task:
    """Give files the mode of another one."""
    model, *names = words(rng, 6)
    mode = pick(rng, (0o600, 0o640, 0o664, 0o755, 0o700))
    paths = [f"{folder}/{name}" for name in names]
    return Task(
        text=f"Give all files in the folder {folder} the permissions that the file "
        f"{folder}/{model} has.",
        files={path: sentence(rng) + "\n" for path in [f"{folder}/{model}", *paths]},
        modes={f"{folder}/{model}": mode},
        solution=f"cd ~/{folder}; chmod --reference={model} *",
        want_modes=dict.fromkeys(paths, mode),
    )


def script(folder: str, rng: np.random.Generator) -> Task:
    """Write a program that can be started by its name."""
    name, text = pick(rng, words(rng, 3)), sentence(rng)
    path = f"{folder}/{name}"
    return Task(
        text=f'Write the bash script {path}, which prints "{text}", so that it can be started as '
        f"./{path}; its mode is 755.",
        files={f"{folder}/readme": sentence(rng) + "\n"},
        solution=f"printf '#!/bin/bash\\necho {text}\\n' > ~/{path}; chmod 755 ~/{path}",
        want_modes={path: 0o755},
        runs=((((f"./{path}",), ""), f"{text}\n"),),
    )


PERMISSIONS = (
    by_ending, tree, writable, executable, private, no_execute, no_others, readable,
    as_model, script,
)  # fmt: skip
