"""Tasks about scripts that fail and services that do not run.

The true outputs come from Python functions, those of a player from a bash script: neither can copy
the other's errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import factorial
from operator import add, mul, sub

import numpy as np

from ludic_gym.envs.core.base import pick, random_int
from ludic_gym.envs.worlds.shell.task import Task, lines, numbers, sentence, words

Requests = Callable[[np.random.Generator], list[str]]
Replies = Callable[[list[str]], list[str]]


INPUTS: Mapping[str, Requests] = {
    "sentences": lambda rng: [sentence(rng) for _ in range(6)],
    "lists": lambda rng: [
        " ".join(map(str, numbers(rng, random_int(rng, 1, 5)))) for _ in range(6)
    ],
    "numbers": lambda rng: [str(n) for n in numbers(rng, 8, -50, 99)],
    "below zero": lambda rng: [str(n) for n in numbers(rng, 6, -99, -1)],
    # As texts, "9" comes after all numbers of two digits up to 89.
    "digits": lambda rng: ["9", *(str(n) for n in numbers(rng, 5, 10, 89))],
    "small": lambda rng: [str(n) for n in numbers(rng, 5, 2, 9)],
    # Bash reads a number that begins with 0 as octal, where 8 and 9 are errors.
    "padded": lambda rng: [f"{n:03}" for n in (8, 9, *numbers(rng, 4, 10, 99))],
    # The limit and its neighbours, by which -gt and -ge differ.
    "marks": lambda rng: ["50", "49", "51", *(str(n) for n in numbers(rng, 5, 0, 99))],
    # Centuries tell the whole rule of leap years from its first half.
    "years": lambda rng: [
        "1900", "2000", "2023", "2024", *(str(n) for n in numbers(rng, 4, 1950, 2050)),
    ],
    "spaced": lambda rng: [" " * random_int(rng, 1, 4) + sentence(rng) for _ in range(4)],
    "backslashes": lambda rng: ["\\".join(words(rng, 3)) for _ in range(4)],
    "columns": lambda rng: [",".join(words(rng, 3)) for _ in range(5)],
    "operations": lambda rng: [
        f"{a} {pick(rng, '+-*')} {b}" for a, b in zip(numbers(rng, 8), numbers(rng, 8), strict=True)
    ],
    "pushes": lambda rng: [
        pick(rng, (f"PUSH {word}", f"PUSH {word}", "POP")) for word in words(rng, 14)
    ],
}  # fmt: skip


def store_requests(rng: np.random.Generator) -> list[str]:
    """SET, GET and DEL of few keys."""
    keys, forms = words(rng, 3), ("SET {} {}", "GET {}", "GET {}", "DEL {}")
    return [pick(rng, forms).format(pick(rng, keys), n) for n in numbers(rng, 14)]


def repeats(rng: np.random.Generator) -> list[str]:
    """Words, some of them twice."""
    few = words(rng, 4)
    return [pick(rng, few) for _ in range(12)]


def store(requests: list[str]) -> list[str]:
    """Replies of a store of keys and values."""
    held: dict[str, str] = {}
    replies = list[str]()
    for request in requests:
        verb, key, *value = request.split()
        if verb == "SET":
            held[key] = value[0]
            replies.append("OK")
        elif verb == "GET":
            replies.append(held.get(key, "NONE"))
        else:
            replies.append("OK" if held.pop(key, None) else "NONE")
    return replies


def queue(requests: list[str], *, last: bool) -> list[str]:
    """Replies of a queue, or of a stack."""
    held, replies = list[str](), list[str]()
    for request in requests:
        verb, _, word = request.partition(" ")
        if verb == "PUSH":
            held.append(word)
            replies.append(str(len(held)))
        else:
            replies.append(held.pop(-1 if last else 0) if held else "EMPTY")
    return replies


def calculated(requests: list[str]) -> list[str]:
    """Results of operations on two numbers."""
    operations = {"+": add, "-": sub, "*": mul}
    lines = (request.split() for request in requests)
    return [str(operations[sign](int(a), int(b))) for a, sign, b in lines]


@dataclass(frozen=True, slots=True)
class Service:
    """A service.

    reply: the reply to a line, in words. requests, replies: inputs and their true outputs.
    script: a bash script that gives them.
    """

    reply: str
    requests: Requests
    replies: Replies
    script: str


STORE = """\
declare -A held
while read -r verb key value; do
  case $verb in
    SET) held[$key]=$value; echo OK;;
    GET) echo "${held[$key]:-NONE}";;
    DEL) if [ -n "${held[$key]}" ]; then unset "held[$key]"; echo OK; else echo NONE; fi;;
  esac
done"""
# A stack or a queue, by the positions of the item that is taken and of those that are left.
LIST = """\
held=()
while read -r verb word; do
  if [ $verb = PUSH ]; then held+=("$word"); echo ${#held[@]}
  elif [ ${#held[@]} = 0 ]; then echo EMPTY
  else echo "${held[@]: ITEM:1}"; held=("${held[@]: LEFT:${#held[@]} - 1}"); fi
done"""
REVERSED = """\
while read -r line; do
  out=
  for ((i = ${#line} - 1; i >= 0; i--)); do out+=${line:i:1}; done
  echo "$out"
done"""
BACKWARDS = """\
while read -r -a words; do
  out=
  for word in ${words[@]}; do out="$word $out"; done
  echo ${out% }
done"""
SUM = """\
while read -r -a numbers; do
  total=0
  for n in ${numbers[@]}; do total=$((total + n)); done
  echo $total
done"""
LARGEST = """\
while read -r -a numbers; do
  best=0
  for n in ${numbers[@]}; do ((n > best)) && best=$n; done
  echo $best
done"""
RUNNING = "t=0; while read -r n; do t=$((t + n)); echo $t; done"
SEEN = "declare -A s; while read -r l; do echo ${s[$l]:-NEW}; s[$l]=OLD; done"
SERVICES = (
    Service(
        "the line in capital letters",
        INPUTS["sentences"],
        lambda requests: [line.upper() for line in requests],
        "tr a-z A-Z",
    ),
    Service(
        "the characters of the line in the reverse order",
        INPUTS["sentences"],
        lambda requests: [line[::-1] for line in requests],
        REVERSED,
    ),
    Service(
        "the number of words of the line",
        INPUTS["sentences"],
        lambda requests: [str(len(line.split())) for line in requests],
        "while read -r -a words; do echo ${#words[@]}; done",
    ),
    Service(
        "the words of the line in the reverse order",
        INPUTS["sentences"],
        lambda requests: [" ".join(reversed(line.split())) for line in requests],
        BACKWARDS,
    ),
    Service(
        "the sum of the numbers in the line",
        INPUTS["lists"],
        lambda requests: [str(sum(map(int, line.split()))) for line in requests],
        SUM,
    ),
    Service(
        "the largest number in the line",
        INPUTS["lists"],
        lambda requests: [str(max(map(int, line.split()))) for line in requests],
        LARGEST,
    ),
    Service(
        "the sum of the number in this line and the numbers in all lines before",
        INPUTS["numbers"],
        lambda requests: list(map(str, accumulate(map(int, requests)))),
        RUNNING,
    ),
    Service(
        "NEW if it is the first line with this text, else OLD",
        repeats,
        lambda requests: ["OLD" if r in requests[:i] else "NEW" for i, r in enumerate(requests)],
        SEEN,
    ),
    Service(
        "the result of the operation; a line is a number, one of + - *, and a number",
        INPUTS["operations"],
        calculated,
        "set -f; while read -r a o b; do echo $((a $o b)); done",
    ),
    Service(
        "as a store does. SET KEY VALUE stores the value and gives OK; GET KEY gives the stored "
        "value, or NONE; DEL KEY removes it and gives OK, or NONE if there was none",
        store_requests,
        store,
        STORE,
    ),
    Service(
        "as a stack does. PUSH WORD puts the word on top and gives the number of words; POP takes "
        "the top one off and gives it, or EMPTY",
        INPUTS["pushes"],
        partial(queue, last=True),
        LIST.replace("ITEM", "-1").replace("LEFT", "0"),
    ),
    Service(
        "as a queue does. PUSH WORD puts the word at the end and gives the number of words; POP "
        "takes the first one out and gives it, or EMPTY",
        INPUTS["pushes"],
        partial(queue, last=False),
        LIST.replace("ITEM", "0").replace("LEFT", "1"),
    ),
)


def service(number: int, folder: str, rng: np.random.Generator) -> Task:
    """A service to write, tried with two lists of requests."""
    one = SERVICES[number]
    name = pick(rng, words(rng, 4))
    path = f"{folder}/{name}.sh"
    inputs = [one.requests(rng) for _ in range(2)]
    # Of a list of its own: examples of the text are no tests.
    shown = one.requests(rng)[:2]
    examples = zip(shown, one.replies(shown), strict=True)
    example = "; ".join(f'"{line}" gives "{reply}"' for line, reply in examples)
    return Task(
        text=f"Write a service as the bash script {path}. For each line on standard input it "
        f"prints one line: {one.reply}. For example, if these are the first lines: {example}.",
        files={f"{folder}/readme": sentence(rng) + "\n"},
        solution=f"cat > ~/{path} <<'END'\n{one.script}\nEND",
        runs=tuple(
            ((("bash", path), lines(requests)), lines(one.replies(requests))) for requests in inputs
        ),
    )


SERVICE_TASKS = tuple(partial(service, number) for number in range(len(SERVICES)))


def is_leap(year: int) -> bool:
    """True for a leap year."""
    return (year % 4 == 0 and year % 100 != 0) or year % 400 == 0


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
        INPUTS["numbers"],
        lambda requests: [str(sum(map(int, requests)))],
        "total=@\nwhile read -r n; do\n  total=$((total + n))\ndone\necho $total",
        "1",
        "0",
    ),
    Bug(
        "prints the largest of all lines, which are numbers and may be negative",
        INPUTS["below zero"],
        lambda requests: [str(max(map(int, requests)))],
        "@\n" + LOOP.format('if [ "$n" -gt "$best" ]; then best=$n; fi') + "\necho $best",
        "best=0",
        "read -r best",
    ),
    Bug(
        "prints the largest of all lines, which are numbers",
        INPUTS["digits"],
        lambda requests: [str(max(map(int, requests)))],
        "read -r best\n" + LOOP.format("if @; then best=$n; fi") + "\necho $best",
        "[[ $n > $best ]]",
        '[ "$n" -gt "$best" ]',
    ),
    Bug(
        "prints the factorial of each line, which is a number (of 4: 24)",
        INPUTS["small"],
        lambda requests: [str(factorial(int(line))) for line in requests],
        LOOP.format("v=1\n  for i in $(seq 1 @); do v=$((v * i)); done\n  echo $v"),
        "$((n - 1))",
        "$n",
    ),
    Bug(
        "prints each line, which is a number with zeros before it, without the zeros",
        INPUTS["padded"],
        lambda requests: [str(int(line)) for line in requests],
        LOOP.format("echo $((@$n))"),
        "",
        "10#",
    ),
    Bug(
        "prints each line as it is",
        INPUTS["spaced"],
        lambda requests: requests,
        "while @read -r line; do\n  printf '%s\\n' \"$line\"\ndone",
        "",
        "IFS= ",
    ),
    Bug(
        "prints each line as it is, also if it has backslashes",
        INPUTS["backslashes"],
        lambda requests: requests,
        "while IFS= read @line; do\n  printf '%s\\n' \"$line\"\ndone",
        "",
        "-r ",
    ),
    Bug(
        "prints pass for each line that is 50 or more, else fail",
        INPUTS["marks"],
        lambda requests: ["pass" if int(line) >= 50 else "fail" for line in requests],
        LOOP.format('if [ "$n" @ 50 ]; then echo pass; else echo fail; fi'),
        "-gt",
        "-ge",
    ),
    Bug(
        "prints the second of the three values of each line, which are separated by commas",
        INPUTS["columns"],
        lambda requests: [line.split(",")[1] for line in requests],
        "cut -d, -f@",
        "1",
        "2",
    ),
    Bug(
        "prints the number of its lines",
        INPUTS["columns"],
        lambda requests: [str(len(requests))],
        "count=0\n@while read -r line; do\n  count=$((count + 1))\ndone\necho $count",
        "cat | ",
        "",
    ),
    Bug(
        "prints yes for each line that is a leap year, else no",
        INPUTS["years"],
        lambda requests: ["yes" if is_leap(int(line)) else "no" for line in requests],
        LOOP.format("if (( n % 4 == 0 && @ )); then echo yes; else echo no; fi"),
        "n % 100 != 0",
        "(n % 100 != 0 || n % 400 == 0)",
    ),
    Bug(
        "prints the result of each line: a number, one of + - *, and a number",
        INPUTS["operations"],
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
