"""Tasks of Terminal about files and folders."""

from __future__ import annotations

import numpy as np

from ludic_gym.envs.core.base import between, pick
from ludic_gym.envs.worlds.shell.task import Task, lines, sentence, words

ENDINGS = ("log", "txt", "csv", "tmp", "bak", "dat")


def _mixed(folder: str, rng: np.random.Generator, ending: str) -> tuple[dict[str, str], list[str]]:
    """Files of three endings, and the names of those with the given one."""
    others = [one for one in ENDINGS if one != ending][:2]
    names = words(rng, 9)
    files = {
        f"{folder}/{name}.{(ending, *others)[i % 3]}": sentence(rng) + "\n"
        for i, name in enumerate(names)
    }
    return files, [path for path in files if path.endswith(f".{ending}")]


def move(folder: str, rng: np.random.Generator) -> Task:
    """Move files of an ending."""
    ending, to = pick(rng, ENDINGS), f"{folder}/{pick(rng, ('old', 'archive', 'done'))}"
    files, chosen = _mixed(folder, rng, ending)
    return Task(
        text=f"In the folder {folder}, move all files whose names end in .{ending} to the new "
        f"folder {to}.",
        files=files,
        solution=f"mkdir -p ~/{to}; mv ~/{folder}/*.{ending} ~/{to}/",
        want={f"{to}/{path.rpartition('/')[2]}": files[path] for path in chosen},
        absent=tuple(chosen),
    )


def delete(folder: str, rng: np.random.Generator) -> Task:
    """Delete files of an ending."""
    ending = pick(rng, ENDINGS)
    files, chosen = _mixed(folder, rng, ending)
    return Task(
        text=f"Delete all files in the folder {folder} whose names end in .{ending}.",
        files=files,
        solution=f"rm ~/{folder}/*.{ending}",
        absent=tuple(chosen),
    )


def ending(folder: str, rng: np.random.Generator) -> Task:
    """Change the ending of names."""
    old, new = pick(rng, ENDINGS[:3]), pick(rng, ("md", "rst", "old"))
    files, chosen = _mixed(folder, rng, old)
    return Task(
        text=f"Rename each file in the folder {folder} that ends in .{old}, so that it ends in "
        f".{new} instead.",
        files=files,
        solution=f'for f in ~/{folder}/*.{old}; do mv "$f" "${{f%.{old}}}.{new}"; done',
        want={path.removesuffix(old) + new: files[path] for path in chosen},
        absent=tuple(chosen),
    )


def pad(folder: str, rng: np.random.Generator) -> Task:
    """Pad the numbers in names with zeros."""
    # Numbers of one and of two digits, which need different zeros.
    word, top = pick(rng, words(rng, 3)), between(rng, 10, 14)
    files = {f"{folder}/{word}-{n}.txt": f"{n} {sentence(rng)}\n" for n in range(1, top + 1)}
    new = {
        f"{folder}/{word}-{n:03}.txt": files[f"{folder}/{word}-{n}.txt"] for n in range(1, top + 1)
    }
    return Task(
        text=f"The folder {folder} has the files {word}-1.txt to {word}-{top}.txt. Rename them so "
        f"that each number has three digits: {word}-001.txt and so on.",
        files=files,
        solution=f"cd ~/{folder}; for n in $(seq 1 {top}); do mv {word}-$n.txt $(printf "
        f'"{word}-%03d.txt" $n); done',
        want=new,
        absent=tuple(files),
    )


def large(folder: str, rng: np.random.Generator) -> Task:
    """Delete files above a size."""
    limit = between(rng, 200, 400)
    # The limit itself and a byte more are among them: "larger" is to be read exactly.
    sizes = [limit + d for d in (-90, -20, 0, 1, 40, 120)]
    files = {f"{folder}/{name}.dat": "x" * (size - 1) + "\n"
             for name, size in zip(words(rng, 6), sizes, strict=True)}  # fmt: skip
    return Task(
        text=f"Delete the files in the folder {folder} that are larger than {limit} bytes.",
        files=files,
        solution=f"find ~/{folder} -type f -size +{limit}c -delete",
        absent=tuple(path for path, text in files.items() if len(text) > limit),
    )


def empty(folder: str, rng: np.random.Generator) -> Task:
    """Delete empty files at any depth."""
    a, b, *names = words(rng, 10)
    paths = [f"{folder}/{(a, f'{a}/{b}', b)[i % 3]}/{name}" for i, name in enumerate(names)]
    files = {path: "" if i % 2 else sentence(rng) + "\n" for i, path in enumerate(paths)}
    return Task(
        text=f"Delete all empty files in the folder {folder} and in the folders inside it.",
        files=files,
        solution=f"find ~/{folder} -type f -empty -delete",
        absent=tuple(path for path, text in files.items() if not text),
    )


def create(folder: str, rng: np.random.Generator) -> Task:
    """Create files in nested folders."""
    a, b, c, text = *words(rng, 3), sentence(rng)
    want = {f"{folder}/{a}/{b}/{c}.txt": text, f"{folder}/{a}/{c}.txt": text.upper()}
    first, second = want
    return Task(
        text=f'Create the file {first} with the line "{text}", and the file {second} with the same '
        "line in capital letters. Make the folders that are missing.",
        files={f"{folder}/readme": sentence(rng) + "\n"},
        solution=f"mkdir -p ~/{folder}/{a}/{b}; echo '{text}' > ~/{first}; "
        f"echo '{text.upper()}' > ~/{second}",
        want=want,
    )


def copy(folder: str, rng: np.random.Generator) -> Task:
    """Copy a folder with all that is in it."""
    a, b, *names = words(rng, 6)
    files = {f"{folder}/{a}/{name}": sentence(rng) + "\n" for name in names}
    files |= {f"{folder}/{a}/{b}/{name}": sentence(rng) + "\n" for name in names[:2]}
    want = {path.replace(f"/{a}/", f"/{a}-copy/", 1): text for path, text in files.items()}
    return Task(
        text=f"Copy the folder {folder}/{a} with all that is in it to {folder}/{a}-copy.",
        files=files,
        solution=f"cp -r ~/{folder}/{a} ~/{folder}/{a}-copy",
        want=want,
    )


def parts(folder: str, rng: np.random.Generator) -> Task:
    """Put parts together in the order of their numbers."""
    # Ten and more, so that the order of names (part1, part10, part2) is a wrong one.
    top = between(rng, 10, 13)
    files = {f"{folder}/part{n}": sentence(rng) + "\n" for n in range(1, top + 1)}
    return Task(
        text=f"Write the contents of {folder}/part1 to {folder}/part{top}, in the order of their "
        f"numbers, to the file {folder}/whole.txt. Leave the parts as they are.",
        files=files,
        solution=f"cd ~/{folder}; for n in $(seq 1 {top}); do cat part$n; done > whole.txt",
        want={f"{folder}/whole.txt": "".join(files.values())},
    )


def index(folder: str, rng: np.random.Generator) -> Task:
    """List names."""
    names = words(rng, 7)
    files = {f"{folder}/in/{name}.{pick(rng, ENDINGS)}": sentence(rng) + "\n" for name in names}
    found = sorted(path.rpartition("/")[2] for path in files)
    return Task(
        text=f"Write the names of the files in the folder {folder}/in to the file "
        f"{folder}/index.txt, one in each line, in alphabetical order.",
        files=files,
        solution=f"ls ~/{folder}/in | sort > ~/{folder}/index.txt",
        want={f"{folder}/index.txt": lines(found)},
    )


def find(folder: str, rng: np.random.Generator) -> Task:
    """Find the file that has a word."""
    a, b, *names = words(rng, 9)
    secret = f"code-{between(rng, 1000, 9999)}"
    paths = [f"{folder}/{(a, b)[i % 2]}/{name}" for i, name in enumerate(names)]
    files = {path: f"{sentence(rng)}\n{sentence(rng)}\n" for path in paths}
    chosen = pick(rng, paths)
    files[chosen] += f"{secret}\n"
    return Task(
        text=f'One file below the folder {folder} has the text "{secret}". Move that file to '
        f"{folder}/found.",
        files=files,
        solution=f'mv "$(grep -rl {secret} ~/{folder})" ~/{folder}/found',
        want={f"{folder}/found": files[chosen]},
        absent=(chosen,),
    )


FILES = (move, delete, ending, pad, large, empty, create, copy, parts, index, find)
