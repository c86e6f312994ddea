"""Tasks of Terminal about bash scripts with an error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ludic_gym.envs.core.base import between, pick
from ludic_gym.envs.worlds.shell.services import Replies, Requests, calculated, pairs, singles
from ludic_gym.envs.worlds.shell.task import Task, lines, numbers, sentence, words


def total(requests: list[str]) -> list[str]:
    """The sum of all lines."""
    return [str(sum(map(int, requests)))]


def largest(requests: list[str]) -> list[str]:
    """The largest line."""
    return [str(max(map(int, requests)))]


def below_zero(rng: np.random.Generator) -> list[str]:
    """Negative numbers."""
    return [str(n) for n in numbers(rng, 6, -99, -1)]


def mixed_digits(rng: np.random.Generator) -> list[str]:
    """Numbers of one and of two digits, for which the order of texts is another one."""
    # As texts, "9" comes after all numbers of two digits up to 89.
    return ["9", *(str(n) for n in numbers(rng, 5, 10, 89))]


def steps(requests: list[str]) -> list[str]:
    """Factorials."""
    made = list[str]()
    for request in requests:
        value = 1
        for factor in range(2, int(request) + 1):
            value *= factor
        made.append(str(value))
    return made


def padded(rng: np.random.Generator) -> list[str]:
    """Numbers with zeros before them."""
    # Bash reads a number that begins with 0 as octal, where 8 and 9 are errors.
    return [f"{n:03}" for n in (8, 9, *numbers(rng, 4, 10, 99))]


def spaced(rng: np.random.Generator) -> list[str]:
    """Lines that begin with blanks."""
    return [" " * between(rng, 1, 4) + sentence(rng) for _ in range(4)]


def backslashes(rng: np.random.Generator) -> list[str]:
    """Lines with backslashes."""
    return ["\\".join(words(rng, 3)) for _ in range(4)]


def grades(requests: list[str]) -> list[str]:
    """Pass from 50 on."""
    return ["pass" if int(request) >= 50 else "fail" for request in requests]


def marks(rng: np.random.Generator) -> list[str]:
    """Numbers around 50."""
    # The limit and its neighbours, by which -gt and -ge differ.
    return ["50", "49", "51", *(str(n) for n in numbers(rng, 5, 0, 99))]


def few(rng: np.random.Generator) -> list[str]:
    """Small numbers."""
    return [str(n) for n in numbers(rng, 5, 2, 9)]


def columns(rng: np.random.Generator) -> list[str]:
    """Lines of three values."""
    return [",".join(words(rng, 3)) for _ in range(5)]


def yearly(rng: np.random.Generator) -> list[str]:
    """Years, with those that decide."""
    # Centuries tell the whole rule from its first half.
    return ["1900", "2000", "2023", "2024", *(str(n) for n in numbers(rng, 4, 1950, 2050))]


def leap(requests: list[str]) -> list[str]:
    """Leap years."""
    years = map(int, requests)
    return ["yes" if (y % 4 == 0 and y % 100) or y % 400 == 0 else "no" for y in years]


def same(requests: list[str]) -> list[str]:
    """The lines themselves."""
    return requests


@dataclass(frozen=True, slots=True)
class Bug:
    """A script with an error.

    purpose: of the script, in words. requests, replies: inputs and their true outputs.
    script: with @ in the place of the error. bad, good: the error and its repair.
    """

    purpose: str
    requests: Requests
    replies: Replies
    script: str
    bad: str
    good: str


LOOP = "while read -r n; do\n  {}\ndone"
BUGS = (
    Bug(
        "prints the sum of all lines, which are numbers",
        singles,
        total,
        "total=@\nwhile read -r n; do\n  total=$((total + n))\ndone\necho $total",
        "1",
        "0",
    ),
    Bug(
        "prints the largest of all lines, which are numbers and may be negative",
        below_zero,
        largest,
        "@\n" + LOOP.format('if [ "$n" -gt "$best" ]; then best=$n; fi') + "\necho $best",
        "best=0",
        "read -r best",
    ),
    Bug(
        "prints the largest of all lines, which are numbers",
        mixed_digits,
        largest,
        "read -r best\n" + LOOP.format("if @; then best=$n; fi") + "\necho $best",
        "[[ $n > $best ]]",
        '[ "$n" -gt "$best" ]',
    ),
    Bug(
        "prints the factorial of each line, which is a number (of 4: 24)",
        few,
        steps,
        LOOP.format("v=1\n  for i in $(seq 1 @); do v=$((v * i)); done\n  echo $v"),
        "$((n - 1))",
        "$n",
    ),
    Bug(
        "prints each line, which is a number with zeros before it, without the zeros",
        padded,
        lambda requests: [str(int(line)) for line in requests],
        LOOP.format("echo $((@$n))"),
        "",
        "10#",
    ),
    Bug(
        "prints each line as it is",
        spaced,
        same,
        "while @read -r line; do\n  printf '%s\\n' \"$line\"\ndone",
        "",
        "IFS= ",
    ),
    Bug(
        "prints each line as it is, also if it has backslashes",
        backslashes,
        same,
        "while IFS= read @line; do\n  printf '%s\\n' \"$line\"\ndone",
        "",
        "-r ",
    ),
    Bug(
        "prints pass for each line that is 50 or more, else fail",
        marks,
        grades,
        LOOP.format('if [ "$n" @ 50 ]; then echo pass; else echo fail; fi'),
        "-gt",
        "-ge",
    ),
    Bug(
        "prints the second of the three values of each line, which are separated by commas",
        columns,
        lambda requests: [line.split(",")[1] for line in requests],
        "cut -d, -f@",
        "1",
        "2",
    ),
    Bug(
        "prints the number of its lines",
        columns,
        lambda requests: [str(len(requests))],
        "count=0\n@while read -r line; do\n  count=$((count + 1))\ndone\necho $count",
        "cat | ",
        "",
    ),
    Bug(
        "prints yes for each line that is a leap year, else no",
        yearly,
        leap,
        LOOP.format("if (( n % 4 == 0 && @ )); then echo yes; else echo no; fi"),
        "n % 100 != 0",
        "(n % 100 != 0 || n % 400 == 0)",
    ),
    Bug(
        "prints the result of each line: a number, one of + - *, and a number",
        pairs,
        calculated,
        "set -f\nwhile read -r a o b; do\n  echo $((a @ b))\ndone",
        "+",
        "$o",
    ),
)


def bug(number: int, folder: str, rng: np.random.Generator) -> Task:
    """A script to repair, tried with two inputs."""
    one = BUGS[number]
    path = f"{folder}/{pick(rng, words(rng, 4))}.sh"
    inputs = [one.requests(rng) for _ in range(2)]
    repaired = one.script.replace("@", one.good)
    return Task(
        text=f"The bash script {path} reads lines from standard input. It should do this: it "
        f"{one.purpose}. It has an error. Repair it.",
        files={
            path: one.script.replace("@", one.bad) + "\n",
            f"{folder}/readme": sentence(rng) + "\n",
        },
        solution=f"cat > ~/{path} <<'END'\n{repaired}\nEND",
        # Any repair is right whose outputs are.
        free=(path,),
        runs=tuple(
            ((("bash", path), lines(requests)), lines(one.replies(requests))) for requests in inputs
        ),
    )


DEBUGGING = tuple(partial(bug, number) for number in range(len(BUGS)))
