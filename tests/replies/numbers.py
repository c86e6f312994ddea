"""Replies with one number, or with none or several, for the grader of numbers."""

from collections.abc import Iterator
from random import Random

from replies.layouts import Row, laid_out

LAYOUTS = (
    "<answer>{}</answer>",
    r"\boxed{{{}}}",
    "She has 3 bags of 4.\n#### {}",
    "The answer is {}",
    "So the total is $\\boxed{{{}}}$.",
    "<think>3 * 4 = 12, or 13?</think>\n<answer> {} </answer>",
    "Answer: {}",
    "**Answer:** {}",
    "The final answer is {}.",
    "<answer>**{}**</answer>",
    "<answer>${}$</answer>",
    "<answer>\n{}\n</answer>\n\nLet me know if 2 or 3 steps are unclear!",
    "{}",
)
# Sentences around a number, in tags and after the phrase.
SENTENCES = (
    "<answer>The total is {}.</answer>",
    "<answer>There are {} apples left.</answer>",
    "<answer>She has {} dollars left</answer>",
    "<answer>Answer: {}</answer>",
    "<answer>The answer is {}</answer>",
    r"<answer>\boxed{{{}}}</answer>",
    r"\boxed{{\text{{The answer is }} {}}}",
    r"\boxed{{x = {}}}",
    r"\boxed{{{}\text{{ apples}}}}",
    "<answer>So she pays {} in total.</answer>",
    "The answer is {} apples.",
    "The answer is: {} miles per hour.",
    "#### {} apples",
    "<answer>= {}</answer>",
    "<answer>x = {}</answer>",
    "The correct answer is therefore **{}**.",
    "### Answer\n\n\\boxed{{{}}}",
)
# {n} is the truth, a whole number, and {m} the next.
SAME = (
    "{n}", "{n:,}", "{n}.0", "{n}.00", "+{n}", "${n}", "${n:,}.00", "{n} dollars", "{n:,} apples",
    "{n}%", "{d}/2", "{n}/1", r"\frac{{{d}}}{{2}}", r"\dfrac{{{d}}}{{2}}", "{n} miles per hour",
    r"{n}\text{{ cm}}", r"{n} \text{{ square feet}}", "{n}e0", "{n}.", "{n} km", "€{n}", "{n} €",
    "{n}°", r"{n}^\circ", "{n} degrees", "{n} cm^2", "{n}kg", "US${n}", "{n} people", "x={n}",
    "{d} / 2", r"\${n}", r"{n}\%", "{n} m/s", "{n} hours",
)  # fmt: skip
OTHER = (
    "{m}", "-{n}", "{n}1", "1{n}", "{n}.5", "0.{n}", "{n} thousand", "{n} million", "{n}k",
    "half of {n}", "{n} dozen", "{n} squared", "{n}^2", "{n} or {m}", "{n}, {m}", "{n}-{m}",
    "{n} - {m}", "{n} to {m}", "between {n} and {m}", "{n} and a half", "{n} 1/2", "{n}/3", "1/{n}",
    "not {n}", "about {n}", "at least {n}", "more than {n}", "less than {n}", "~{n}", "{n}?",
    "{n}x", "{n} times ten", "{n}e2", r"{n} \times 10^2", "{n} lakh", "{n} plus {m}", "{n} + 1",
    "{n} * 2", r"\sqrt{{{n}}}", "{n} {m}", "{n}_{m}", "{n}:{m}", "{n} remainder 2", "minus {n}",
    "{n} hundred", "almost {n}", "twice {n}", r"\frac{{2}}{{{d}}}", "{n}%%", "{n},{m},", "0x{n}",
    "{n} grand", "{n} permille", "{n} or so", "maybe {n}", "unknown", "no answer", "",
)  # fmt: skip
# A unit of the truth decides where the answer has one too.
CURRENCIES = (
    ("{n} dollars", "${n}", True), ("€{n}", "${n}", False), ("{n} euros", "${n}", False),
    ("{n}00 cents", "${n}", True), ("{n} cents", "${n}", False), ("${n}", "{n}%", False),
    ("{n}", "${n}", True), ("{n}%", "{n}%", True), ("£{n}", "€{n}", False), ("€{n}", "€{n}", True),
    ("¥{n}", "${n}", False), ("{n} pounds", "${n}", False),
    ("${n}.00", "${n}", True), ("${n}.50", "${n}", False), ("{n} USD", "${n}", True),
    ("{n} apples", "${n}", False),
)  # fmt: skip
BOTH = (
    "<answer>{n}</answer><answer>{m}</answer>",
    r"\boxed{{{n}}} or \boxed{{{m}}}",
    "<answer>{n} or {m}</answer>",
    "The answer is {n} or {m}.",
    "#### {n} {m}",
    "The answer is either {n} or {m}",
    "<answer>{n}\n{m}</answer>",
    r"\boxed{{{n}, {m}}}",
    "{n} {m}",
    "There are {n} boys and {m} girls.",
)
# Numbers of more than a whole part, with the same and other values.
PARTS = (
    ("3.5", ("7/2", "3 1/2", "3.50", r"\frac{7}{2}", r"3\frac{1}{2}", "350/100", "$3.50", "+3.5",
             "35e-1", r"\dfrac72"), ("35", "3.05", "3.6", "3", "7", "-3.5", "3,5", "2/7", "5.3")),
    ("-12", ("-12.0", "−12", "-24/2", "- 12", r"-\frac{24}{2}", "–12", "-$12"),
     ("12", "-13", "12-", "--12", "-1.2", "-120", "(12)")),
    ("0.25", ("1/4", ".25", "0.250", r"\frac14", "25e-2", "2/8"),
     ("0.5", "25", "4", "1/5", "0.26", "2.5", "25%")),
    ("1234567", ("1,234,567", "1 234 567", r"1{,}234{,}567", r"1\,234\,567", "$1,234,567",
                 "1234567.0", "1,234,567 people"), ("1,234,568", "1,234", "1.234567", "1,23,4567",
                                                    "12345678", "1,234,567,000", "1.234.567")),
    ("1/3", ("2/6", r"\frac{1}{3}", r"\frac13", r"0.\overline{3}", "1/3 cup", "$1/3$"),
     ("0.33", "0.3333", "3", "3/1", "1/4", "-1/3", "1.3")),
    ("9007199254740993", ("9,007,199,254,740,993", "9007199254740993.0"),
     ("9007199254740992", "9007199254740994", "9.007199254740993e14")),
)  # fmt: skip


def whole_numbers(r: Random) -> Iterator[tuple[str, str, bool]]:
    """A whole number in other forms, and other numbers."""
    for forms, right in ((SAME, True), (OTHER, False)):
        for form in forms:
            for _ in range(3):
                n = r.randint(20, 99_999)
                yield form.format(n=n, m=n + 1, d=2 * n), str(n), right


def sentences(r: Random) -> Iterator[Row]:
    """A right and a wrong number in each sentence."""
    for sentence in SENTENCES:
        for change in (0, 0, 1, -2):
            n = r.randint(20, 9_999)
            number = f"{n + change:,}" if r.random() < 0.5 else str(n + change)
            yield Row("number", "sentences", sentence.format(number), str(n), change == 0)


def rows(r: Random) -> Iterator[Row]:
    """Every form in one layout after the other."""
    pairs = list(whole_numbers(r))
    # A layout for each form of "not 12" would meet "the answer is not 12", which is wrong as well.
    yield from laid_out("number", "whole numbers", r.sample(pairs, len(pairs)), LAYOUTS)
    yield from sentences(r)
    for answer, truth, right in CURRENCIES:
        n = r.randint(20, 999)
        yield Row("number", "currencies", f"<answer>{answer.format(n=n)}</answer>",
                  truth.format(n=n), right)  # fmt: skip
    for text in BOTH:
        n = r.randint(20, 999)
        yield Row("number", "two answers", text.format(n=n, m=n + 7), str(n), False)
        yield Row("number", "two answers", text.format(n=n - 7, m=n), str(n), False)
    for truth, same, other in PARTS:
        pairs = [(each, truth, True) for each in same] + [(each, truth, False) for each in other]
        plain = tuple(layout for layout in LAYOUTS if "${" not in layout)
        yield from laid_out("number", "parts", pairs, plain)
