"""False positives and false negatives of every grader, on sets made by rules and on real ones.

    python benchmarks/graders.py --data ../shared/data --math-verify math_verify-0.9.0/tests

Without the folders, only the sets that are made by rules. `--markdown` prints the table of
docs/guides/graders.md. Data: `math500/test.jsonl`, `gsm8k/test.jsonl`. The tests of Math-Verify are
in its source archive: `pip download --no-deps --no-binary :all: math-verify`.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random

from ludic_gym.graders.extract import Grade
from ludic_gym.graders.maths import grade_maths, is_refused, prepared
from ludic_gym.graders.numeric import grade_number
from ludic_gym.graders.text import grade_choice, grade_exact, grade_f1

Pair = tuple[str, str, bool]
"""A reply, the truth, and True if the reply is right."""

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
class Row:
    """Result of a grader on a set: its size, and the replies that were misjudged."""

    grader: str
    name: str
    positives: int
    negatives: int
    false_positives: tuple[Pair, ...]
    false_negatives: tuple[Pair, ...]

    def cells(self) -> tuple[str, ...]:
        """The columns of the table."""
        return (
            f"`{self.grader}`",
            self.name,
            _rate(len(self.false_positives), self.negatives),
            _rate(len(self.false_negatives), self.positives),
        )


def _rate(wrong: int, of: int) -> str:
    return f"{wrong} of {of:,} ({wrong / of:.1%})" if of else "-"


def measured(
    grader: str, name: str, grade: Callable[[str, str], Grade], pairs: Iterator[Pair] | list[Pair]
) -> Row:
    """The grader's verdicts on the pairs."""
    wrong: dict[bool, list[Pair]] = {True: [], False: []}
    counts = {True: 0, False: 0}
    for reply, truth, right in pairs:
        counts[right] += 1
        if grade(reply, truth).correct != right:
            wrong[right].append((reply, truth, right))
    return Row(grader, name, counts[True], counts[False], tuple(wrong[False]), tuple(wrong[True]))


# Kind -> a truth, and a reply that is nearly right; made with a random number from 2 to 99.
NEAR: tuple[Callable[[int, Random], tuple[str, str]], ...] = (
    lambda n, r: (f"{n}", f"{-n}"),
    lambda n, r: (f"{n}", f"{n + r.choice([-1, 1])}"),
    lambda n, r: (rf"\frac{{{n}}}{{{n + 1}}}", rf"\frac{{{n + 1}}}{{{n}}}"),
    lambda n, r: (rf"\frac{{{n}}}{{7}}" if n % 7 else "3", rf"\frac{{{n + 1}}}{{7}}"),
    lambda n, r: (rf"{n} \text{{ cm}}", rf"{n} \text{{ m}}"),
    lambda n, r: (rf"{n} \text{{ cm}}^2", rf"{n} \text{{ cm}}^3"),
    lambda n, r: (rf"{n} \text{{ minutes}}", f"{n} hours"),
    lambda n, r: (
        f"{n}",
        rf"{n} \text{{ {r.choice(['thousand', 'million', 'dozen', 'hundred'])}}}",
    ),
    lambda n, r: (f"{n}", f"{n} {r.choice(['or', 'and'])} {n + 1}"),
    lambda n, r: (f"{n}", rf"{n} \text{{ or }} {n + 2}"),
    lambda n, r: (f"{n}", f"{n}, {n + 1}"),
    lambda n, r: (
        f"{n}",
        rf"{n - 1} \{r.choice(['lor', 'mid', 'sim'])} {n}",
    ),
    lambda n, r: (f"{n}", rf"\pm {n}"),
    lambda n, r: (
        f"{n}",
        r.choice([f"not {n}", f"maybe {n}", rf"\neq {n}", f"> {n}", rf"\ge {n}"]),
    ),
    lambda n, r: (rf"{n}\frac{{4}}{{5}}", rf"\frac{{{n}4}}{{5}}"),
    lambda n, r: (rf"\frac{{{n}1}}{{2}}", f"{n} 1/2"),
    lambda n, r: (rf"\sqrt{{{n}}}", rf"\sqrt{{{n + 1}}}"),
    lambda n, r: (rf"{n}\sqrt{{3}}", rf"3\sqrt{{{n}}}" if n != 3 else r"4\sqrt{3}"),
    lambda n, r: (rf"{n}\pi", rf"{n}\pi^2"),
    lambda n, r: (f"x^2+{n}x", f"x^2-{n}x"),
    lambda n, r: (f"(x+{n})^2", f"x^2+{n}^2"),
    lambda n, r: (f"(1,{n})", f"({n},1)"),
    lambda n, r: (f"[1,{n}]", f"[1,{n})"),
    lambda n, r: (rf"\{{1,{n}\}}", rf"\{{1,{n},{n + 1}\}}"),
    lambda n, r: (rf"\{{1,{n}\}}", f"{n}"),
    lambda n, r: (f"x \\le {n}", f"x < {n}"),
    lambda n, r: (f"x \\le {n}", f"x \\ge {n}"),
    lambda n, r: (f"y={n}x+1", f"y={n}x-1"),
    lambda n, r: (f"{n}", f"x + 1 = {n}"),
    lambda n, r: (f"2^{{-{n + 50}}}", f"2^{{-{n + 51}}}"),
    lambda n, r: (f"\\frac{{1}}{{{n + 30}!}}", f"\\frac{{1}}{{{n + 31}!}}"),
    lambda n, r: (f"{n / 100:.2f}", rf"{n}\%"),
    lambda n, r: (f"{n}.5", f"{n},5"),
    lambda n, r: (f"{n}", f"{n}e1"),
    lambda n, r: (f"{n}_8", f"{n}_9"),
    lambda n, r: (f"{n}i", f"{n}"),
    lambda n, r: (rf"\text{{{_WORDS[n % 4]}}}", rf"\text{{{_WORDS[(n + 1) % 4]}}}"),
    lambda n, r: (f"{n}:7" if n != 7 else "2:7", f"7:{n}" if n != 7 else "7:2"),
)
_WORDS = ("Evelyn", "Navin", "even", "odd")
MARKS = ("\\boxed{{{}}}", "So it is $\\boxed{{{}}}$.", "<answer>{}</answer>", "#### {}",
         "The answer is {}", "{}", "The final answer is ${}$.")  # fmt: skip


def near_misses(count: int, seed: int = 0) -> Iterator[Pair]:
    """Wrong replies: sign, off by one, swapped fraction, unit, two answers, hedges."""
    rng = Random(seed)
    for i in range(count):
        truth, answer = NEAR[i % len(NEAR)](rng.randint(2, 99), rng)
        yield rng.choice(MARKS).format(answer), truth, False


# Kind -> a truth and another form of it.
FORMS: tuple[Callable[[int, Random], tuple[str, str]], ...] = (
    lambda n, r: (f"{n * 1234}", f"{n * 1234:,}"),
    lambda n, r: (f"{n * 1234}", f"{n * 1234:,}".replace(",", r"{,}\!")),
    lambda n, r: (rf"\frac{{{n}}}{{8}}", f"{n / 8}"),
    lambda n, r: (rf"\frac{{{n}}}{{{n + 1}}}", rf"\dfrac{{{n}}}{{{n + 1}}}"),
    lambda n, r: (rf"\frac{{{5 * n + 4}}}{{5}}", rf"{n}\frac{{4}}{{5}}"),
    lambda n, r: (rf"\frac{{{2 * n + 1}}}{{2}}", f"{n} 1/2"),
    lambda n, r: (f"{n}", rf"{n}\text{{ cm}}"),
    lambda n, r: (rf"{n}\text{{ cm}}", f"{n}"),
    lambda n, r: (rf"{n}\text{{ cm}}^2", rf"{n}\text{{ square centimeters}}"),
    lambda n, r: (f"{n}", rf"\${n}"),
    lambda n, r: (f"{n}", rf"{n}^\circ"),
    lambda n, r: (f"{n * 100}", rf"{n} \times 10^{{2}}"),
    lambda n, r: (f"{n * 100}", f"{n}e2"),
    lambda n, r: (f"{n}", f"x = {n}"),
    lambda n, r: (rf"\sqrt{{{n * n * 3}}}", rf"{n}\sqrt{{3}}"),
    lambda n, r: (f"x^2+x^3+{n}", f"{n}+x^3+x^2"),
    lambda n, r: (f"{2 * 9 * n}", rf"2\cdot3^2\cdot{n}"),
    lambda n, r: (f"(x+{n})^2", f"x^2+{2 * n}x+{n * n}"),
    lambda n, r: (rf"\{{1,{n}\}}", f"{n}, 1"),
    lambda n, r: (f"1, {n}", rf"1 \text{{ and }} {n}"),
    lambda n, r: (r"(1,\infty)", r"(1, \infty)"),
    lambda n, r: (f"(1,{n})", rf"\left( 1, {n} \right)"),
    lambda n, r: (f"x \\le {n}", f"{n} \\ge x"),
    lambda n, r: (f"1 < x < {n}", f"(1, {n})"),
    lambda n, r: (f"y={n}x+1", f"y = 1+{n}x"),
    lambda n, r: (rf"\pm {n}", f"{n}, -{n}"),
    lambda n, r: (f"{n}+3i", f"3i+{n}"),
    lambda n, r: (rf"\text{{{_WORDS[n % 4]}}}", _WORDS[n % 4]),
    lambda n, r: (f"{n}", str(Fraction(n * 7, 7)) + ".0"),
)


def right_forms(count: int, seed: int = 0) -> Iterator[Pair]:
    """Right replies in another form than the truth."""
    rng = Random(seed)
    for i in range(count):
        truth, answer = FORMS[i % len(FORMS)](rng.randint(2, 99), rng)
        yield rng.choice(MARKS).format(answer), truth, True


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


def number_pairs(count: int, seed: int = 0) -> Iterator[Pair]:
    """Replies for grade_number: layouts of the number, and words that change it."""
    rng = Random(seed)
    right = ("{n}", "{n:,}", "${n}", "{n}.00", "{n}%", "{n} apples", "{n} miles per hour",
             "x = {n}", "{n}e0", r"\frac{{{d}}}{{2}}", "{n}/1")  # fmt: skip
    wrong = ("{m}", "-{n}", "{n} thousand", "half of {n}", "{n} dozen", "{n} squared", "{n} or {m}",
             "not {n}", "{n} times ten", "{n} lakh", "{n}x", "{n} and a half", "about {n}", "{n}/3",
             "{n} 1/2", "{n}e2", "more than {n}", "{n}, {m}", "{n} - {m}")  # fmt: skip
    for i in range(count):
        n = rng.randint(2, 99_999)
        kinds, is_right = (right, True) if i % 2 else (wrong, False)
        text = kinds[i // 2 % len(kinds)].format(n=n, m=n + 1, d=2 * n)
        yield rng.choice(MARKS[:4]).format(text), str(n), is_right


NAMES = ("New York City", "Lake Victoria", "the Eiffel Tower", "Battle of Hastings", "Nile",
         "Ada Lovelace", "photosynthesis", "3.5 million", "salt and pepper",
         "Treaty of Tordesillas")  # fmt: skip


def word_pairs(count: int, seed: int = 0) -> Iterator[Pair]:
    """Replies for grade_exact and grade_f1: layouts of a name; a second, negated or other name."""
    rng = Random(seed)
    right = ("{a}", "the {a}", "{a}.", "{u}", "**{a}**", '"{a}"', " {a} ")
    wrong = ("{b}", "{a} {b}", "{a}, {b}", "{a} or {b}", "not {a}", "{a}/{b}", "{b} {a}",
             "{a} Boston", "neither {a}", "{a}; {b}", "{a} and {b}", "{a} 7")  # fmt: skip
    for i in range(count):
        a, b = rng.sample(NAMES, 2)
        kinds, is_right = (right, True) if i % 2 else (wrong, False)
        text = kinds[i // 2 % len(kinds)].format(a=a, b=b, u=a.upper())
        yield f"<answer>{text}</answer>", f"{a}\nno such answer", is_right


def choice_pairs(count: int, seed: int = 0) -> Iterator[Pair]:
    """Replies for grade_choice: layouts of a letter; other, several or denied letters."""
    rng = Random(seed)
    right = ("{a}", "({a})", "{a}.", "{a}: Paris", "{a}) 12", "**{a}**", r"\boxed{{{a}}}", "{l}",
             "The answer is {a}.", "{a}. Vitamin C", "Option {a}")  # fmt: skip
    wrong = ("{b}", "{a}, {b}", "{a} or {b}", "{a}. {b}", "({a}) ({b})", "{a} and {b}", "not {a}",
             "{b}: {a}", "{a}: is wrong", "{a}/{b}", "{a}. or {b}", "{a}{b}", "ABCD",
             "{a}) Paris {b}) Rome")  # fmt: skip
    for i in range(count):
        a, b = rng.sample("ABCD", 2)
        kinds, is_right = (right, True) if i % 2 else (wrong, False)
        yield kinds[i // 2 % len(kinds)].format(a=a, b=b, l=a.lower()), a, is_right


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


def rows(data: Path | None, tests: Path | None) -> Iterator[Row]:
    """Every grader on every set."""
    yield measured("grade_maths", "near misses by rules", grade_maths, near_misses(2000))
    yield measured("grade_maths", "other forms by rules", grade_maths, right_forms(2000))
    if tests is not None:
        pairs = math_verify_pairs(tests)
        yield measured("grade_maths", "Math-Verify's tests, uncontested", grade_maths, pairs)
    if data is not None:
        problems = [json.loads(line) for line in (data / "math500/test.jsonl").open()]
        answers = [each["answer"] for each in problems]
        own = [(f"\\boxed{{{answer}}}", answer, True) for answer in answers]
        yield measured("grade_maths", "MATH-500, answers", grade_maths, own)
        written = [(each["solution"], each["answer"], True) for each in problems]
        yield measured("grade_maths", "MATH-500, solutions", grade_maths, written)
        yield measured("grade_maths", "MATH-500, changed answers", grade_maths, mutated(answers))
        sums = [json.loads(line)["answer"] for line in (data / "gsm8k/test.jsonl").open()]
        solved = [(text, text.rpartition("####")[2].strip(), True) for text in sums]
        yield measured("grade_number", "GSM8K, solutions", grade_number, solved)
    yield measured("grade_number", "layouts and changing words", grade_number, number_pairs(4000))
    yield measured("grade_choice", "layouts and several letters", grade_choice, choice_pairs(4000))
    yield measured("grade_exact", "layouts and second names", grade_exact, word_pairs(4000))
    yield measured("grade_f1", "layouts and second names", grade_f1, word_pairs(4000))


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
    parser.add_argument("--data", type=Path, help="folder with math500 and gsm8k")
    parser.add_argument("--math-verify", type=Path, help="folder with the tests of Math-Verify")
    parser.add_argument("--show", type=int, default=0, help="misjudged replies to print per set")
    args = parser.parse_args()
    print("| grader | set | false positives | false negatives |\n|---|---|---|---|")
    for row in rows(args.data, args.math_verify):
        print(f"| {' | '.join(row.cells())} |", flush=True)
        for reply, truth, right in (*row.false_positives, *row.false_negatives)[: args.show]:
            print(f"    {'right' if right else 'wrong'}: {reply[-150:]!r} for {truth[-100:]!r}")
    spent = hostile_cpu_s(1000)
    print(f"\nhostile expressions: {len(spent):,}, at most {spent[-1]:.2f} CPU-s each")
    print(f"plain numbers per CPU-second: {plain_numbers_per_second():,.0f}")


if __name__ == "__main__":
    main()
