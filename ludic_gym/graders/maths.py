"""Grader of maths: an exact comparison first, then math-verify in a process of its own."""

import re
from fractions import Fraction
from functools import lru_cache

from ludic_gym.errors import DataError
from ludic_gym.graders import latex, units
from ludic_gym.graders.extract import LONGEST as MOST
from ludic_gym.graders.extract import (
    Grade,
    after_thought,
    boxed,
    braced,
    found_answers,
    without_lead,
)
from ludic_gym.graders.latex import in_latex
from ludic_gym.graders.math_pool import POOL
from ludic_gym.graders.numeric import Number, changes_number, marked_number
from ludic_gym.graders.statements import final_values, stated_values

# A longer answer is not given to math-verify: it was not meant as a value.
LONGEST = 300
# The parser's time is exponential in the depth of brackets.
DEEPEST = 10
# No zeros in front and no -0: equal numbers must be equal texts.
_INTEGER = re.compile(r"-?[1-9]\d{0,14}|0")
_PLAIN_NUMBER = re.compile(rf"\\boxed\{{({_INTEGER.pattern})\}}|{_INTEGER.pattern}")
_TEXT = re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox)\s?\{([^{}]*)\}")
_BOLD = re.compile(r"\\(?:mathbf|boldsymbol|bm|pmb)\s?(?=\{)")
# Numbers side by side; not an index or a power, such as that of a logarithm, before a number, not a
# whole part before its fraction, and not a group of thousands.
_APART = re.compile(r"(?<![_^])\d(?:\s|~|\\q?quad(?![a-z])|\\[,;:! ])+(?!\d+\s?/|\d{3}(?!\d))\d")
_INDEXED = re.compile(r"(?<![\d.])\d+_\{?\d")
# An answer with these may name two values, of which one may be right, or deny it.
_HEDGES = re.compile(
    r"\\boxed|\b(?:or|and|either|neither|nor|not|isn't|maybe|perhaps|possibly|probably|might|could"
    r"|guess|unsure|unknown|between|versus|vs|instead)\b|\?|\\(?:lor|land|vee|wedge|neg|not|nmid)\b",
    re.IGNORECASE,
)
_WORDS = re.compile(r"(?:[Nn]o )?[A-Za-z][a-z]{2,}(?:[ -][A-Za-z]+)*")
_SCIENTIFIC = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?![\w.])")
_MIXED = re.compile(
    r"(?<![\d.,/^_])(\d+)(?:\s+(\d+)\s?/\s?(\d+)(?![\d/])|\s*\\[dt]?frac\{(\d+)\}\{(\d+)\})"
)
_CURRENCY = re.compile(r"\\?[$€£]")
_PERCENT = re.compile(r"\\?%|(?<=\d)\s?[AaPp]\.?\s?[Mm]\b\.?")
# An event has no value of its own, by which the product P(A) could be named.
_PROBABILITY = re.compile(r"^\s*(?:P|\\Pr|\\mathbb\s?\{?P\}?)\s?(?:\\left)?\([^()]*\)\s*=")
_COMMA = re.compile(r",(?=\S)")
_APPROXIMATE = re.compile(r"\\approx(?![a-z])|≈")
_ANGLE = re.compile(r"(\d+(?:\.\d+)?)\s?(?:\^\s?\{?\\circ\}?|degrees?\b)")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
# The set of all x with a property.
_BUILDER = re.compile(
    r"\\?\{\s*[a-z](?:\s*\\in\s*\\mathbb\{R\})?\s*(?::|\||\\mid(?![a-z])|\\vert(?![a-z]))(.*)\\?\}"
)
_UNBOUNDED = re.compile(r"\\operatorname\s?\{?\s?(?:eig|diagonal|svd|SVD|null|orth|rref|rank)")


def grade_maths(text: str, truth: str, *, question: str = "") -> Grade:
    r"""Grade an answer as correct if it has the value of `truth`, both in LaTeX or plain text.

    The answer is found as by `extract`. Several boxes or tags are joined where the truth is a
    collection; for a single truth, each of them must have its value. A bare text with prose needs
    one marked expression, or one number. Boxes of the question do not count.
    The rule names how it was found and compared: "boxed, exact" (equal texts or equal numbers),
    "boxed, math-verify", or why it was not compared: "boxed, refused" (too long, towers,
    factorials, two values in one answer), "ambiguous". math-verify is needed only where the texts
    differ and are not both numbers. 1 m is 100 cm, but 1 cm is not 1 m, 3 boys are not 3 girls.
    Raises DataError if the truth is blank, ConfigError where math-verify is needed and missing,
    GraderError if it reached no verdict; the reply is neither right nor wrong then.

    >>> grade_maths(r"So $x = \boxed{\dfrac12}$.", r"\frac{1}{2}").rule
    'boxed, exact'
    >>> grade_maths("The answer is 0.5", "1/2").correct
    True
    >>> grade_maths(r"\boxed{9^{9^9}}", "1").rule
    'boxed, refused'
    """
    # Most answers of the environments of arithmetic: 5 times faster.
    if (number := _PLAIN_NUMBER.fullmatch(text)) and _INTEGER.fullmatch(truth):
        value = number[1] or text
        return Grade(value == truth, value, "boxed, exact" if number[1] else "bare, exact")
    right = _truth(truth)
    candidates, rule = found_answers(text, question)
    if rule not in ("boxed", "tag"):
        candidates, rule = _stated(text, candidates, rule)
    if not candidates:
        return Grade(False, None, rule)
    answers = list(dict.fromkeys(map(_unboxed, candidates)))
    grades = [compare_values(answer, right) for answer in answers]
    # 5 km and 5 m are both right for 5, but differ.
    one = all(compare_values(answer, answers[-1])[0] for answer in answers[:-1])
    if one and all(correct for correct, _ in grades):
        return Grade(True, answers[-1], f"{rule}, {grades[-1][1]}")
    if len(answers) == 1:
        return Grade(False, answers[0], f"{rule}, {grades[0][1]}")
    if not latex.is_collection(right):
        return Grade(False, None, "ambiguous")
    joined = ", ".join(answers)
    correct, how = compare_values(joined, right)
    return Grade(correct, joined, f"{rule}, {how}")


@lru_cache(maxsize=2**14)
def compare_values(answer: str, truth: str) -> tuple[bool, str]:
    """True if both have one value, and the name of the comparison.

    The name is "exact", "refused", or "math-verify". Raises ConfigError and GraderError as
    `grade_maths` does; an error is not remembered.
    """
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(truth):
        return answer == truth, "exact"
    answer, truth = in_latex(answer), in_latex(truth)
    # Most pairs end here or at the next step, without a round trip to another process.
    if latex.plain(answer) == latex.plain(truth):
        return True, "exact"
    # Not of a truth that is a sentence itself, such as "f is odd".
    if truth == without_lead(truth):
        answer = without_lead(answer)
    ratio = units.ratio(answer, truth)
    facts = zip(latex.facts_of(answer), latex.facts_of(truth), strict=True)
    differ = any(a and b and a != b for a, b in facts)
    if ratio is None or differ or not units.words_agree(answer, truth):
        return False, "exact"
    values = [
        unit.value if (unit := units.unit_of(t)) and unit.value else t for t in (answer, truth)
    ]
    number, expected = map(marked_number, values)
    if number is not None and expected is not None:
        return (number if ratio == 1 else Fraction(number) * ratio) == expected, "exact"
    # math-verify would take words for products of letters.
    if _WORDS.fullmatch(_TEXT.sub(r"\1", latex.without_dollars(truth)).strip()):
        texts = (
            latex.plain(text).strip("()").casefold().removesuffix("s") for text in (answer, truth)
        )
        return len(set(texts)) == 1, "exact"
    answer = _approximated(answer)
    if is_refused(answer, truth):
        return False, "refused"
    if ratio != 1:
        value, truth = values
        answer = rf"\frac{{{ratio.numerator}}}{{{ratio.denominator}}} \cdot ({value})"
    verdict = POOL.ask(prepared(answer), prepared(truth))
    return verdict == "equal", "refused" if verdict == "refused" else "math-verify"


def is_refused(answer: str, truth: str) -> bool:
    """True for an answer that is too long or too deep to parse, or that may have several values.

    >>> is_refused("3 or 4", "3"), is_refused("3 or 4", "3, 4"), is_refused("x = 3", "3")
    (True, False, False)
    """
    # By the truth's length too: an answer in the form of a long truth must not be refused.
    if len(answer) > max(LONGEST, 2 * len(truth)) or latex.depth_of(answer) > DEEPEST:
        return True
    # An unbalanced brace would close the box that `math_server` puts around the answer.
    if answer.count("{") != answer.count("}") or _UNBOUNDED.search(answer):
        return True
    if latex.is_collection(truth) or "\\cup" in truth:
        return False
    if _HEDGES.search(answer) or _contradicts(answer):
        return True
    # math-verify takes items of a list without commas for a product, and 1 0 for 0.
    if _APART.search(answer) and not _APART.search(truth):
        return True
    # It drops the index of a number.
    if _INDEXED.search(answer) and not _INDEXED.search(truth):
        return True
    # math-verify ignores words, which may change the number that they follow.
    return any(changes_number(words) and words not in truth for words in _TEXT.findall(answer))


def prepared(text: str) -> str:
    r"""The text for math-verify: without units of money and percent, and with plain numbers.

    >>> prepared("$1,200"), prepared("1.5e3"), prepared("1 1/2"), prepared("(1,2)")
    ('1200', '1.5\\times 10^{3}', '\\frac{3}{2}', '(1, 2)')
    """
    text = latex.ungrouped(latex.without_dollars(text))
    text = _PERCENT.sub("", _CURRENCY.sub("", text))
    if _TRIGONOMETRIC.search(text):
        text = _ANGLE.sub(r"{\\frac{\1\\pi}{180}}", text)
    text = _PROBABILITY.sub("P =", text)
    text = _BUILDER.sub(lambda m: m[1].removesuffix("\\"), text)
    text = _MIXED.sub(_improper, _SCIENTIFIC.sub(r"\1\\times 10^{\2}", text))
    text = text.replace("≤", "\\le ").replace("≥", "\\ge ").replace("<=", "\\le ")
    return _COMMA.sub(", ", text.replace(">=", "\\ge ").replace("!=", "\\neq "))


def _stated(text: str, candidates: list[str], rule: str) -> tuple[list[str], str]:
    """The values that the found text states; those of the end of a text that is too long."""
    if candidates:
        return stated_values(candidates[0], is_marked=rule != "bare"), rule
    reply, _ = after_thought(text)
    if reply is None or len(reply) <= MOST:
        return [], rule
    values = final_values(reply[-MOST:])
    return values, "bare" if values else rule


def _approximated(answer: str) -> str:
    r"""The exact side of an answer such as \sqrt{2} \approx 1.41, or the number of x \approx 1.41.

    math-verify takes the left side alone; numbers that differ by over 1 % are two answers.
    """
    sides = _APPROXIMATE.split(latex.without_dollars(answer))
    left, *others = (side.strip() for side in sides)
    if len(others) != 1 or not left:
        return answer
    exact, rounded = marked_number(left), marked_number(others[0])
    if exact is not None and rounded is not None:
        return left if _is_near(exact, rounded) else f"{left} or {others[0]}"
    return others[0] if left.isalpha() else left


def _contradicts(answer: str) -> bool:
    """True for a chain such as 3 = 4 = 3, of which math-verify takes the last side."""
    sides = [marked_number(side) for side in latex.without_dollars(answer).split("=")]
    numbers = [number for number in sides if number is not None]
    return any(not _is_near(numbers[0], number) for number in numbers[1:])


def _is_near(exact: Number, rounded: Number) -> bool:
    """True for numbers that differ by 1 % at most, as a number and its rounded value do."""
    # A Decimal cannot be subtracted from a Fraction, and either one may be either.
    return abs(Fraction(exact) - Fraction(rounded)) <= abs(Fraction(exact)) / 100


def _improper(mixed: re.Match[str]) -> str:
    """The fraction of a mixed number, which the parser takes for a product before a symbol."""
    top, bottom = mixed[2] or mixed[4], mixed[3] or mixed[5]
    return f"\\frac{{{int(mixed[1]) * int(bottom) + int(top)}}}{{{bottom}}}"


@lru_cache(maxsize=2**14)
def _truth(truth: str) -> str:
    """The truth, or what its boxes contain. Raises DataError if it is blank."""
    boxes = boxed(truth)
    if not truth.strip():
        raise DataError(f"the truth must not be blank, got {truth!r}")
    return ", ".join(dict.fromkeys(boxes)) if boxes else latex.without_dollars(truth)


def _unboxed(answer: str) -> str:
    """The content of the box, if the answer is one, without bold type around all of it."""
    inside = boxed(answer)
    answer = inside[0] if len(inside) == 1 else answer
    if bold := _BOLD.match(answer):
        content = braced(answer[bold.end() :])
        # Not of the sum of two names in bold type.
        if content and bold.end() + len(content) + 2 == len(answer):
            return content
    return answer
