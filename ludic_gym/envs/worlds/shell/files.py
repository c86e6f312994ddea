"""Tasks about files: their places, permissions and text."""

from __future__ import annotations

from functools import partial

import numpy as np

from ludic_gym.envs.core.base import pick, random_int, random_order
from ludic_gym.envs.worlds.shell.task import MODE, Task, lines, numbers, sentence, words

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
    word, top = pick(rng, words(rng, 3)), random_int(rng, 10, 14)
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
    limit = random_int(rng, 200, 400)
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
    top = random_int(rng, 10, 13)
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
    listed = sorted(path.rpartition("/")[2] for path in files)
    return Task(
        text=f"Write the names of the files in the folder {folder}/in to the file "
        f"{folder}/index.txt, one in each line, in alphabetical order.",
        files=files,
        solution=f"ls ~/{folder}/in | sort > ~/{folder}/index.txt",
        want={f"{folder}/index.txt": lines(listed)},
    )


def find(folder: str, rng: np.random.Generator) -> Task:
    """Find the file that has a word."""
    a, b, *names = words(rng, 9)
    secret = f"code-{random_int(rng, 1000, 9999)}"
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
    (ending, mode, text), (other, _, _) = random_order(rng, BY_ENDING)[:2]
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


def _listing(
    folder: str, rng: np.random.Generator, text: str, modes: tuple[int, ...], test: str
) -> Task:
    """A list of the files with a mode, one of `modes`."""
    mode = pick(rng, modes) if len(modes) > 1 else modes[0]
    names = words(rng, 9)
    mode_of = {name: mode if i % 3 == 0 else MODE for i, name in enumerate(names)}
    chosen = sorted(name for name in names if mode_of[name] == mode)
    return Task(
        text=f"Write the names of the files in the folder {folder}/in that {text} to "
        f"{folder}/list.txt, one in each line, in alphabetical order. Change no permissions.",
        files={f"{folder}/in/{name}": sentence(rng) + "\n" for name in names},
        modes={f"{folder}/in/{name}": mode_of[name] for name in names},
        solution=f"cd ~/{folder}/in; find . -type f -perm {test} -printf '%f\\n' | sort > "
        "../list.txt",
        want={f"{folder}/list.txt": lines(chosen)},
    )


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
    by_ending,
    tree,
    partial(_listing, text="everybody can write", modes=(0o666, 0o646), test="-o=w"),
    partial(_listing, text="their owner can execute", modes=(0o755, 0o744), test="-u=x"),
    partial(_listing, text="nobody but their owner can read", modes=(0o600,), test="600"),
    partial(
        _change,
        text="Some files in the folder {folder} can be executed. Let nobody execute them any more.",
        old=0o755,
        new=0o644,
        command="chmod a-x *",
    ),
    partial(
        _change,
        text="Take away the right to write from everybody but the owner for all files in {folder}.",
        old=0o666,
        new=0o644,
        command="chmod go-w *",
    ),
    partial(
        _change,
        text="Some files in {folder} cannot be read by anybody. Give all files there the mode 644.",
        old=0o000,
        new=0o644,
        command="chmod 644 *",
    ),
    as_model,
    script,
)


def _answer(folder: str, text: str, files: dict[str, str], answer: object, command: str) -> Task:
    """A task whose answer goes to answer.txt."""
    return Task(
        text=f"{text} Write the answer to {folder}/answer.txt.",
        files=files,
        solution=f"cd ~/{folder}; {{ {command}; }} > answer.txt",
        want={f"{folder}/answer.txt": f"{answer}\n"},
    )


def total(folder: str, rng: np.random.Generator) -> Task:
    """Sum a column for a key."""
    keys = words(rng, 3)
    rows = [(pick(rng, keys), n) for n in numbers(rng, 30)]
    # The name that is asked for occurs at least once.
    rows[0] = (keys[0], rows[0][1])
    text = f"The file {folder}/table.csv has lines of a name and a number. What is the sum of the "
    answer = sum(n for key, n in rows if key == keys[0])
    files = {f"{folder}/table.csv": lines([f"{key},{n}" for key, n in rows])}
    command = (
        f"t=0; while IFS=, read -r k n; do [ $k = {keys[0]} ] && t=$((t + n)); done < table.csv; "
        "echo $t"
    )
    return _answer(folder, f"{text}numbers of {keys[0]}?", files, answer, command)


def count(folder: str, rng: np.random.Generator) -> Task:
    """Count lines of a level in a log."""
    level = pick(rng, ("ERROR", "WARN", "INFO"))
    rows = [f"{n} {pick(rng, ('ERROR', 'WARN', 'INFO'))} {sentence(rng)}" for n in range(40)]
    # At least one line has the level.
    rows.append(f"40 {level} {sentence(rng)}")
    files = {f"{folder}/app.log": lines(rows)}
    answer = sum(f" {level} " in line for line in rows)
    text = f"How many lines of {folder}/app.log have the level {level}?"
    return _answer(folder, text, files, answer, f"grep -c ' {level} ' app.log")


def frequent(folder: str, rng: np.random.Generator) -> Task:
    """Find the most frequent word."""
    pool = words(rng, 6)
    # The first word comes 12 times, each other one at most 9 times.
    drawn = [pool[0]] * 12 + [word for word in pool[1:] for _ in range(random_int(rng, 2, 9))]
    order = [drawn[int(i)] for i in rng.permutation(len(drawn))]
    text = f"Which word is in the most lines of {folder}/words.txt?"
    command = "sort words.txt | uniq -c | sort -rn | head -1 | tr -d ' 0-9'"
    return _answer(folder, text, {f"{folder}/words.txt": lines(order)}, pool[0], command)


def unique(folder: str, rng: np.random.Generator) -> Task:
    """List the different lines in order."""
    pool = words(rng, 9)
    drawn = [pick(rng, pool) for _ in range(40)]
    text = (
        f"Write the different lines of {folder}/names.txt, each once, in alphabetical order, to "
        f"{folder}/unique.txt."
    )
    return Task(
        text=text,
        files={f"{folder}/names.txt": lines(drawn)},
        solution=f"sort -u ~/{folder}/names.txt > ~/{folder}/unique.txt",
        want={f"{folder}/unique.txt": lines(sorted(set(drawn)))},
    )


def replace(folder: str, rng: np.random.Generator) -> Task:
    """Replace a host in all settings."""
    old, new, *names = words(rng, 7)
    hosts = (f"{old}.example.org", f"{new}.example.net")
    paths = [f"{folder}/{name}.conf" for name in names[:3]] + [f"{folder}/sub/{names[3]}.conf"]
    files = {path: f"name = {sentence(rng)}\nhost = {hosts[0]}\nport = 80\n" for path in paths}
    # A file with the same host that must stay: replacing in all files is wrong.
    files[f"{folder}/{names[4]}.txt"] = f"The host was {hosts[0]}.\n"
    return Task(
        text=f"Replace the host {hosts[0]} by {hosts[1]} in all files below the folder {folder} "
        "whose names end in .conf, and in no other file.",
        files=files,
        solution=f"find ~/{folder} -name '*.conf' -exec sed -i 's/{old}\\.example\\.org/"
        f"{hosts[1]}/g' {{}} +",
        want={path: files[path].replace(*hosts) for path in paths},
    )


def column(folder: str, rng: np.random.Generator) -> Task:
    """Extract a column."""
    rows = [
        [w, str(n), pick(rng, words(rng, 3))]
        for w, n in zip(words(rng, 12), numbers(rng, 12), strict=True)
    ]
    number = random_int(rng, 1, 3)
    word = ("first", "second", "third")[number - 1]
    return Task(
        text=f"Write the {word} column of {folder}/table.csv to {folder}/column.txt, one value in "
        "each line, in the same order.",
        files={f"{folder}/table.csv": lines([",".join(row) for row in rows])},
        solution=f"cut -d, -f{number} ~/{folder}/table.csv > ~/{folder}/column.txt",
        want={f"{folder}/column.txt": lines([row[number - 1] for row in rows])},
    )


def ordered(folder: str, rng: np.random.Generator) -> Task:
    """Sort lines by a number."""
    # All different, so that there is one right order.
    values = [int(n) for n in rng.permutation(300)[:15]]
    rows = [f"{pick(rng, words(rng, 3))} {n}" for n in values]
    return Task(
        text=f"Sort the lines of {folder}/scores.txt by the number in their second column, the "
        "highest first, and write them to the same file.",
        files={f"{folder}/scores.txt": lines(rows)},
        solution=f"cd ~/{folder}; sort -k2,2nr -o scores.txt scores.txt",
        want={f"{folder}/scores.txt": lines(sorted(rows, key=lambda r: -int(r.split()[1])))},
    )


def part(folder: str, rng: np.random.Generator) -> Task:
    """Extract a range of lines."""
    first, size = random_int(rng, 5, 15), random_int(rng, 4, 12)
    rows = [f"{n}: {sentence(rng)}" for n in range(100, 140)]
    return Task(
        text=f"Write the lines {first} to {first + size} of {folder}/story.txt to "
        f"{folder}/part.txt; the first line is number 1.",
        files={f"{folder}/story.txt": lines(rows)},
        solution=f"sed -n '{first},{first + size}p' ~/{folder}/story.txt > ~/{folder}/part.txt",
        want={f"{folder}/part.txt": lines(rows[first - 1 : first + size])},
    )


def comments(folder: str, rng: np.random.Generator) -> Task:
    """Remove comments and empty lines."""
    kinds = [pick(rng, ("# {}", "", "{}", "key = {}  # 1")) for _ in range(20)]
    rows = ["# begin", *(kind.format(sentence(rng)) for kind in kinds), "end = 1"]
    settings = [row for row in rows if row and not row.startswith("#")]
    return Task(
        text=f"Remove from {folder}/settings.ini all lines that are empty and all lines that begin "
        "with #. Leave the other lines as they are.",
        files={f"{folder}/settings.ini": lines(rows)},
        solution=f"sed -i '/^#/d; /^$/d' ~/{folder}/settings.ini",
        want={f"{folder}/settings.ini": lines(settings)},
    )


def lower(folder: str, rng: np.random.Generator) -> Task:
    """Change letters to lower case."""
    rows = [sentence(rng).title() for _ in range(8)]
    return Task(
        text=f"Change all capital letters in {folder}/titles.txt to small letters.",
        files={f"{folder}/titles.txt": lines(rows)},
        # Written through the file itself, because a new file would have another mode.
        solution=f"cd ~/{folder}; tr A-Z a-z < titles.txt > t; cat t > titles.txt; rm t",
        want={f"{folder}/titles.txt": lines(rows).lower()},
    )


def joined(folder: str, rng: np.random.Generator) -> Task:
    """Join two files by a key."""
    # Sorted, as join(1) needs both files.
    keys = sorted(words(rng, 10))
    left, right = (dict(zip(keys, numbers(rng, 10), strict=True)) for _ in range(2))
    rows = [f"{key} {left[key]} {right[key]}" for key in keys]
    return Task(
        text=f"The files {folder}/a.txt and {folder}/b.txt have the same names in the same order, "
        f"each with a number. Write {folder}/both.txt with lines of the name, its number in a.txt "
        "and its number in b.txt, separated by one space, in the same order.",
        files={
            f"{folder}/a.txt": lines([f"{key} {n}" for key, n in left.items()]),
            f"{folder}/b.txt": lines([f"{key} {n}" for key, n in right.items()]),
        },
        solution=f"cd ~/{folder}; join a.txt b.txt > both.txt",
        want={f"{folder}/both.txt": lines(rows)},
    )


TEXT = (total, count, frequent, unique, replace, column, ordered, part, comments, lower, joined)
