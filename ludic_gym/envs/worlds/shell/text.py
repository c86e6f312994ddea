"""Tasks of Terminal about the content of text files."""

from __future__ import annotations

import numpy as np

from ludic_gym.envs.core.base import between, pick
from ludic_gym.envs.worlds.shell.task import Task, lines, numbers, sentence, words


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
    found = [f"{n} {pick(rng, ('ERROR', 'WARN', 'INFO'))} {sentence(rng)}" for n in range(40)]
    # At least one line has the level.
    found.append(f"40 {level} {sentence(rng)}")
    files = {f"{folder}/app.log": lines(found)}
    answer = sum(f" {level} " in line for line in found)
    text = f"How many lines of {folder}/app.log have the level {level}?"
    return _answer(folder, text, files, answer, f"grep -c ' {level} ' app.log")


def frequent(folder: str, rng: np.random.Generator) -> Task:
    """Find the most frequent word."""
    pool = words(rng, 6)
    # The first word comes 12 times, each other one at most 9 times.
    found = [pool[0]] * 12 + [word for word in pool[1:] for _ in range(between(rng, 2, 9))]
    order = [found[int(i)] for i in rng.permutation(len(found))]
    text = f"Which word is in the most lines of {folder}/words.txt?"
    command = "sort words.txt | uniq -c | sort -rn | head -1 | tr -d ' 0-9'"
    return _answer(folder, text, {f"{folder}/words.txt": lines(order)}, pool[0], command)


def unique(folder: str, rng: np.random.Generator) -> Task:
    """List the different lines in order."""
    pool = words(rng, 9)
    found = [pick(rng, pool) for _ in range(40)]
    text = (
        f"Write the different lines of {folder}/names.txt, each once, in alphabetical order, to "
        f"{folder}/unique.txt."
    )
    return Task(
        text=text,
        files={f"{folder}/names.txt": lines(found)},
        solution=f"sort -u ~/{folder}/names.txt > ~/{folder}/unique.txt",
        want={f"{folder}/unique.txt": lines(sorted(set(found)))},
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
    number = between(rng, 1, 3)
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
    first, size = between(rng, 5, 15), between(rng, 4, 12)
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
    kept = [row for row in rows if row and not row.startswith("#")]
    return Task(
        text=f"Remove from {folder}/settings.ini all lines that are empty and all lines that begin "
        "with #. Leave the other lines as they are.",
        files={f"{folder}/settings.ini": lines(rows)},
        solution=f"sed -i '/^#/d; /^$/d' ~/{folder}/settings.ini",
        want={f"{folder}/settings.ini": lines(kept)},
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
