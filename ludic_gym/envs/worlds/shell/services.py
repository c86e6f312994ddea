"""Tasks of Terminal about small services that answer requests on stdin and stdout.

The true outputs come from Python functions, those of a player from a bash script: neither can copy
the other's errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ludic_gym.envs.core.base import between, pick
from ludic_gym.envs.worlds.shell.task import Task, lines, numbers, sentence, words

Requests = Callable[[np.random.Generator], list[str]]
Replies = Callable[[list[str]], list[str]]


def sentences(rng: np.random.Generator) -> list[str]:
    """Lines of words."""
    return [sentence(rng) for _ in range(6)]


def sums(rng: np.random.Generator) -> list[str]:
    """Lines of numbers."""
    return [" ".join(map(str, numbers(rng, between(rng, 1, 5)))) for _ in range(6)]


def singles(rng: np.random.Generator) -> list[str]:
    """Lines of one number, some of them negative."""
    return [str(n) for n in numbers(rng, 8, -50, 99)]


def pairs(rng: np.random.Generator) -> list[str]:
    """Lines of a number, an operation and a number."""
    return [
        f"{a} {pick(rng, '+-*')} {b}" for a, b in zip(numbers(rng, 8), numbers(rng, 8), strict=True)
    ]


def store_requests(rng: np.random.Generator) -> list[str]:
    """SET, GET and DEL of few keys."""
    keys, made = words(rng, 3), list[str]()
    for n in numbers(rng, 14):
        made.append(
            pick(rng, ("SET {} {}", "GET {}", "GET {}", "DEL {}")).format(pick(rng, keys), n)
        )
    return made


def pushes(rng: np.random.Generator) -> list[str]:
    """PUSH and POP."""
    return [pick(rng, (f"PUSH {word}", f"PUSH {word}", "POP")) for word in words(rng, 14)]


def repeats(rng: np.random.Generator) -> list[str]:
    """Words, some of them twice."""
    few = words(rng, 4)
    return [pick(rng, few) for _ in range(12)]


def store(requests: list[str]) -> list[str]:
    """Replies of a store of keys and values."""
    held: dict[str, str] = {}
    made = list[str]()
    for request in requests:
        verb, key, *value = request.split()
        if verb == "SET":
            held[key] = value[0]
            made.append("OK")
        elif verb == "GET":
            made.append(held.get(key, "NONE"))
        else:
            made.append("OK" if held.pop(key, None) else "NONE")
    return made


def queue(requests: list[str], *, last: bool) -> list[str]:
    """Replies of a queue, or of a stack."""
    held, made = list[str](), list[str]()
    for request in requests:
        verb, _, word = request.partition(" ")
        if verb == "PUSH":
            held.append(word)
            made.append(str(len(held)))
        else:
            made.append(held.pop(-1 if last else 0) if held else "EMPTY")
    return made


def running(requests: list[str]) -> list[str]:
    """Running totals."""
    total, made = 0, list[str]()
    for request in requests:
        total += int(request)
        made.append(str(total))
    return made


def fresh(requests: list[str]) -> list[str]:
    """NEW or OLD for each request."""
    return ["OLD" if request in requests[:i] else "NEW" for i, request in enumerate(requests)]


def calculated(requests: list[str]) -> list[str]:
    """Results of operations on two numbers."""
    made = list[str]()
    for request in requests:
        a, sign, b = request.split()
        made.append(str({"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]))
    return made


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
        sentences,
        lambda requests: [line.upper() for line in requests],
        "tr a-z A-Z",
    ),
    Service(
        "the characters of the line in the reverse order",
        sentences,
        lambda requests: [line[::-1] for line in requests],
        REVERSED,
    ),
    Service(
        "the number of words of the line",
        sentences,
        lambda requests: [str(len(line.split())) for line in requests],
        "while read -r -a words; do echo ${#words[@]}; done",
    ),
    Service(
        "the words of the line in the reverse order",
        sentences,
        lambda requests: [" ".join(reversed(line.split())) for line in requests],
        BACKWARDS,
    ),
    Service(
        "the sum of the numbers in the line",
        sums,
        lambda requests: [str(sum(map(int, line.split()))) for line in requests],
        SUM,
    ),
    Service(
        "the largest number in the line",
        sums,
        lambda requests: [str(max(map(int, line.split()))) for line in requests],
        LARGEST,
    ),
    Service(
        "the sum of the number in this line and the numbers in all lines before",
        singles,
        running,
        RUNNING,
    ),
    Service("NEW if it is the first line with this text, else OLD", repeats, fresh, SEEN),
    Service(
        "the result of the operation; a line is a number, one of + - *, and a number",
        pairs,
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
        pushes,
        partial(queue, last=True),
        LIST.replace("ITEM", "-1").replace("LEFT", "0"),
    ),
    Service(
        "as a queue does. PUSH WORD puts the word at the end and gives the number of words; POP "
        "takes the first one out and gives it, or EMPTY",
        pushes,
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
