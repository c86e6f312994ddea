"""False positives and false negatives of every grader, with math-verify's on the same replies.

    python benchmarks/graders.py --data ../shared/data --math-verify math_verify-0.9.0/tests

The labelled replies of tests/replies; with the folders also `math500/test.jsonl`,
`gsm8k/test.jsonl`, and the tests of Math-Verify, which are in its source archive:
`pip download --no-deps --no-binary :all: math-verify`.
"""

from __future__ import annotations

import argparse
import ast
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ludic_gym.graders.benchmark_rules import gpqa_letter, mmlu_pro_letter
from ludic_gym.graders.constraints import grade_constraints
from ludic_gym.graders.maths import grade_maths, is_refused, prepared
from ludic_gym.graders.numeric import grade_number
from ludic_gym.graders.programs.blocks import PYTHON, program_in
from ludic_gym.graders.programs.grader import grader_for
from ludic_gym.graders.programs.types import CallTests, ProgramTests, QueryTests, StdinTests
from ludic_gym.graders.text import grade_choice, grade_exact, grade_f1

Pair = tuple[str, str, bool]
"""A reply, the truth, and True if the reply is right."""
Judge = Callable[[str, str], bool]
"""Function of a reply and the truth: True if the reply is right."""

ROOT = Path(__file__).parents[1]
REPLIES = ROOT / "tests" / "replies" / "replies.jsonl"
DATA = Path(os.environ.get("LUDIC_DATA_DIR", ROOT.parent / "shared" / "data"))
_TAG = re.compile("<answer>(.*?)</answer>", re.DOTALL)
JUDGES: dict[str, Judge] = {
    "maths": lambda reply, truth: grade_maths(reply, truth).correct,
    "number": lambda reply, truth: grade_number(reply, truth).correct,
    "choice": lambda reply, truth: grade_choice(reply, truth).correct,
    "exact": lambda reply, truth: grade_exact(reply, truth).correct,
    "f1": lambda reply, truth: grade_f1(reply, truth).correct,
    "constraints": lambda reply, truth: grade_constraints(reply, truth).correct,
    "mmlu_pro": lambda reply, truth: mmlu_pro_letter(reply) == truth,
    "gpqa": lambda reply, truth: gpqa_letter(reply) == truth,
    "function": lambda reply, truth: passes(reply, function_tests(**json.loads(truth))),
    "program": lambda reply, truth: passes(reply, StdinTests(cases=(tuple(json.loads(truth)),))),
    "query": lambda reply, truth: passes(reply, QueryTests(schema=PETS, reference=truth)),
}
PETS = "CREATE TABLE pets (name TEXT, age INT); INSERT INTO pets VALUES ('Rex', 3), ('Tom', 4);"

# Pairs of Math-Verify's tests that this grader decides otherwise, by a part of the reply or truth.
CONTESTED = {
    "1000,99": "a comma separates values or thousands; it is no decimal point",
    "1,22": "a comma separates values or thousands; it is no decimal point",
    "2,74": "a comma separates values or thousands; it is no decimal point",
    "0,111": "a comma separates values or thousands; it is no decimal point",
    "not 10 which is": "names two numbers without a mark",
    "number is 10 which": "names two numbers without a mark",
    "not it's not 10": "names two numbers without a mark",
    "Answer $ \n 9": "a line break inside $...$ is layout",
    "Answer \\( \n 9": "a line break inside \\(...\\) is layout",
    "\\$ = \\frac{10}{9}": "the dollar that ends the expression is escaped",
    "\\boxed{28\\%}": "the truth is a page of prose without a box",
    "0.0833333333333333": "a decimal is not a fraction that it only approximates",
    "0.33\\\\0.2": "needs a precision of two places",
    "(0.6,2.6667]": "needs a precision of four places",
    "\\\\boxed{W(n)": "the box of the truth is not closed",
    "no no no no no": "two boxes with other words between them are two boxes",
    "x=1/3\\approx1.3": "1/3 is not about 1.3: two values",
    "1 + \\frac{1}{\\mathrm{e}}": "the signs differ; the test expects an error of the parser",
}


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a judge on a set: its size, and the replies that were misjudged."""

    judge: str
    name: str
    positives: int
    negatives: int
    false_positives: tuple[Pair, ...]
    false_negatives: tuple[Pair, ...]

    def cells(self) -> tuple[str, ...]:
        """The columns of the table."""
        return (
            f"`{self.judge}`",
            self.name,
            _rate(len(self.false_positives), self.negatives),
            _rate(len(self.false_negatives), self.positives),
        )


def _rate(wrong: int, of: int) -> str:
    return f"{wrong} of {of:,} ({wrong / of:.1%})" if of else "-"


def measured(judge: str, name: str, is_right: Judge, pairs: Iterable[Pair]) -> Result:
    """The verdicts of the judge on the pairs."""
    wrong: dict[bool, list[Pair]] = {True: [], False: []}
    counts = {True: 0, False: 0}
    for reply, truth, right in pairs:
        counts[right] += 1
        if is_right(reply, truth) != right:
            wrong[right].append((reply, truth, right))
    return Result(judge, name, counts[True], counts[False], tuple(wrong[False]), tuple(wrong[True]))


def function_tests(name: str, calls: list[list[Any]], expected: list[Any]) -> CallTests:
    """The tests of a labelled function."""
    return CallTests(name=name, calls=tuple(map(tuple, calls)), expected=tuple(expected))


def passes(reply: str, tests: ProgramTests) -> bool:
    """True if the program of the reply passes in the sandbox that works here."""
    name = tests.name if isinstance(tests, CallTests) else ""
    languages = ("sql", "sqlite") if isinstance(tests, QueryTests) else PYTHON
    program = program_in(reply, languages, defines=name)
    return grader_for("auto").grade(program, tests).outcome == "passed"


def labelled() -> dict[str, list[Pair]]:
    """The labelled replies of each grader."""
    found: dict[str, list[Pair]] = {}
    with REPLIES.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            found.setdefault(row["grader"], []).append((row["reply"], row["truth"], row["right"]))
    return found


def by_math_verify(reply: str, truth: str) -> bool:
    """The verdict of math-verify with its defaults, on the text after the thought.

    The content of tags, which it does not know, is given to it in boxes, as the truth is.
    """
    # Here, because it needs the extra `math`.
    from math_verify import parse, verify

    answer = _TAG.sub(r"\\boxed{\1}", reply.rpartition("</think>")[2])
    return bool(verify(parse(f"\\boxed{{{truth}}}"), parse(answer)))


def mutated(answers: list[str], seed: int = 0) -> Iterator[Pair]:
    """Real answers with one digit changed, a sign added, or a second answer."""
    rng = Random(seed)
    for answer in answers:
        places = [i for i, c in enumerate(answer) if c.isdigit()]
        if places and "\\pm" not in answer:
            at = rng.choice(places)
            digit = str((int(answer[at]) + rng.randint(1, 8)) % 10)
            changed = answer[:at] + digit + answer[at + 1 :]
            # 1/2 and 2/4 are one value; so a fraction is left to the other sets.
            if "frac" not in answer and "/" not in answer and digit != "0":
                yield f"\\boxed{{{changed}}}", answer, False
            yield f"\\boxed{{{answer}}} or \\boxed{{{changed}1}}", answer, False
        yield f"\\boxed{{{answer}+1}}" if places else "\\boxed{q}", answer, False


def math_verify_pairs(folder: Path) -> Iterator[Pair]:
    """The pairs of Math-Verify's own tests that are not contested, with its default settings."""
    for path in sorted(folder.glob("test_*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and ast.unparse(call.func).endswith("parametrize")):
                continue
            names = [name.strip() for name in str(ast.literal_eval(call.args[0])).split(",")]
            if names[:2] != ["gold", "pred"]:
                continue
            try:
                cases = ast.literal_eval(call.args[1])
            except ValueError:
                # A case with a call in it, of which there is one.
                continue
            for case in cases:
                given = dict(zip(names, case, strict=True))
                right = bool(given.get("expected", given.get("result")))
                options = given.get("strict", True), given.get("allow_set_relation_comp", False)
                if options == (True, False) and not is_contested(given["pred"], given["gold"]):
                    yield given["pred"], given["gold"], right


def is_contested(reply: str, truth: str) -> bool:
    """True for a pair of `CONTESTED`."""
    return any(part in reply or part in truth for part in CONTESTED)


def results(data: Path | None, tests: Path | None) -> Iterator[Result]:
    """Every grader on every set, and math-verify on those of numbers and mathematics."""
    for grader, pairs in labelled().items():
        yield measured(grader, "labelled replies", JUDGES[grader], pairs)
        if grader in ("maths", "number"):
            yield measured("math-verify", f"the same of {grader}", by_math_verify, pairs)
    is_right, is_number = JUDGES["maths"], JUDGES["number"]
    if tests is not None:
        pairs = list(math_verify_pairs(tests))
        yield measured("maths", "Math-Verify's tests, uncontested", is_right, pairs)
    if data is not None:
        problems = [json.loads(line) for line in (data / "math500/test.jsonl").open()]
        answers = [each["answer"] for each in problems]
        own = [(f"\\boxed{{{answer}}}", answer, True) for answer in answers]
        yield measured("maths", "MATH-500, answers", is_right, own)
        written = [(each["solution"], each["answer"], True) for each in problems]
        yield measured("maths", "MATH-500, solutions", is_right, written)
        changed = list(mutated(answers))
        yield measured("maths", "MATH-500, changed answers", is_right, changed)
        yield measured("math-verify", "the same", by_math_verify, changed)
        sums = [json.loads(line)["answer"] for line in (data / "gsm8k/test.jsonl").open()]
        solved = [(text, text.rpartition("####")[2].strip(), True) for text in sums]
        yield measured("number", "GSM8K, solutions", is_number, solved)


def _nested(opening: str, inside: str, closing: str, depth: int) -> str:
    return opening * depth + inside + closing * depth


# Expressions that cost much where they are evaluated; made with a random number from 2 to 12.
HOSTILE: tuple[Callable[[int, Random], str], ...] = (
    lambda n, r: _nested("9^{", "9", "}", n),
    lambda n, r: f"{10 ** r.randint(2, 9)}!",
    lambda n, r: "3" + "!" * n,
    lambda n, r: "x" * 100_000,
    lambda n, r: _nested(r"\sqrt{2+", "3", "}", n),
    lambda n, r: _nested("(", "x", ")", 2 * n),
    lambda n, r: rf"\binom{{{10 ** r.randint(3, 9)}}}{{{10 ** r.randint(2, 8)}}}",
    lambda n, r: rf"\Gamma({10 ** r.randint(2, 9)})",
    lambda n, r: f"(x+y+z+w)^{{{r.randint(3, 2000)}}}",
    lambda n, r: rf"\sum_{{k=1}}^{{{10 ** r.randint(2, 9)}}} \frac{{1}}{{k^2}}",
    lambda n, r: rf"\int_0^1 \frac{{\sin(x^{n})}}{{x+1}} dx",
    lambda n, r: "+".join(rf"\sqrt[{r.randint(2, 7)}]{{{r.randint(2, 99)}}}" for _ in range(n)),
    lambda n, r: r"\frac{1}{" + "+".join(rf"\sqrt{{{k * k + 1}}}" for k in range(1, n)) + "}",
    lambda n, r: f"x^{{{10 ** r.randint(2, 9)}}}-1",
    lambda n, r: _nested(r"\frac{1}{1+", "x", "}", n),
    lambda n, r: _nested(r"\sin(", "x", ")", n),
    lambda n, r: "*".join(f"(x^{r.randint(2, 30)}+{k})" for k in range(1, n)),
    lambda n, r: rf"\begin{{pmatrix}}1&2\\3&4\end{{pmatrix}}^{{{10 ** r.randint(2, 9)}}}",
    lambda n, r: rf"\operatorname{{eye}}({10 ** r.randint(3, 9)})",
    lambda n, r: f"1.5e{r.randint(10, 999_999_999)}",
)
TRUTHS = ("7", r"\sqrt{2}", "x+1", r"\frac{\pi}{3}", r"\{1,2\}")


def hostile(count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Expensive replies with a cheap truth, or with one that differs from the reply by 1, or 0."""
    rng = Random(seed)
    for i in range(count):
        text = HOSTILE[i % len(HOSTILE)](rng.randint(2, 12), rng)
        near = f"{text}+{rng.randint(0, 1)}" if len(text) < 200 else "7"
        yield text, rng.choice([*TRUTHS, near, near])


def hostile_cpu_s(count: int, seed: int = 0) -> list[float]:
    """CPU time of each hostile pair, in the order of the costs, in this process."""
    # Here, because it needs the extra `math`.
    from latex2sympy2_extended import latex2sympy2

    from ludic_gym.graders import math_server

    latex2sympy2.sympy = math_server.bounded_sympy()
    spent = []
    for text, truth in hostile(count, seed):
        start = time.process_time()
        if not is_refused(text, truth):
            math_server.verdict_on(prepared(text), prepared(truth))
        spent.append(time.process_time() - start)
    return sorted(spent)


def plain_numbers_per_second() -> float:
    """Replies with a plain number that `grade_maths` grades in a second of CPU time."""
    texts = [(f"\\boxed{{{i}}}", str(i + i % 2)) for i in range(100_000)]
    start = time.process_time()
    for text, truth in texts:
        grade_maths(text, truth)
    return len(texts) / (time.process_time() - start)


def main() -> None:
    """Print the table, and the misjudged replies where asked for."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with math500 and gsm8k")
    parser.add_argument("--math-verify", type=Path, help="folder with the tests of Math-Verify")
    parser.add_argument("--show", type=int, default=0, help="misjudged replies to print per set")
    args = parser.parse_args()
    # It warns of every expression that it cannot parse.
    logging.disable(logging.ERROR)
    data = args.data if args.data.exists() else None
    print("" if data else f"without MATH-500 and GSM8K: no folder {args.data}")
    print("| grader | set | false positives | false negatives |\n|---|---|---|---|")
    for result in results(data, args.math_verify):
        print(f"| {' | '.join(result.cells())} |", flush=True)
        for reply, truth, right in (*result.false_positives, *result.false_negatives)[: args.show]:
            print(f"    {'right' if right else 'wrong'}: {reply[-150:]!r} for {truth[-100:]!r}")
    spent = hostile_cpu_s(1000)
    print(f"\nhostile expressions: {len(spent):,}, at most {spent[-1]:.2f} CPU-s each")
    print(f"plain numbers per CPU-second: {plain_numbers_per_second():,.0f}")


if __name__ == "__main__":
    main()
