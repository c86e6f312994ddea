"""Grader of numbers: exact arithmetic, bounded time, nothing evaluated.

Values are Decimal or Fraction, so that 0.1 + 0.2 is 0.3 and 1/3 differs from 0.3333. No float is
made, by which 2**53 + 1 would equal 2**53.
"""

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from ludic_gym.errors import DataError
from ludic_gym.graders.extract import Grade, found_answers, without_lead
from ludic_gym.graders.latex import SPELLED, repeated
from ludic_gym.graders.units import UNIT_OF, ratio

Number = Decimal | Fraction

# Longer than any answer, short enough that no quantifier below can be made to run far.
_LONGEST = 200
# The grouped forms first: at the start of a longer text, `\d+` would end at the first separator.
_UNSIGNED = (
    r"(?:(?:\d{1,3}(?:,\d{3})+|[1-9]\d{0,2}(?:[ \u00a0\u2009\u202f]\d{3})+)(?!\d)(?:\.\d+)?"
    r"|\d+(?:\.\d+)?|\.\d+)"
)
_SEPARATORS = re.compile(r"[, \u00a0\u2009\u202f]")
# Exponents of three digits at most: as a Fraction, which `maths` makes of numbers too, 1e999999999
# is an integer of so many digits.
_NUMBER = re.compile(
    rf"(?P<sign>[-+\u2212\u2013]?)\s?(?:US)?[$€£¥₹]?\s?(?:(?P<whole>\d+)\s+(?=\d+\s?/))?(?P<top>{_UNSIGNED})"
    rf"(?:[eE](?P<exponent>[-+]?\d{{1,3}})|\s?/\s?(?P<bottom>{_UNSIGNED}))?(?:\s?%)?"
)
# A marked answer may have a name and a unit: "x = 18 dollars per day".
_LEAD = re.compile(r"(?:[A-Za-z]\s?)?=\s?")
_UNIT = re.compile(r"[^\W\d_][^\W\d_ %/'.-]*(?:[ /'-][^\W\d_]+){0,5}")
_RAISED = re.compile(r"\s?\^\s?(?:[23]|\{[23]\})$")
_DEGREES = re.compile(r"\^\s?\{?\s?\\circ\s?\}?|\\degree(?![a-z])")
# Units that are no words: degrees, and currencies after the number.
_SIGN = re.compile(r"°\s?[CFK]?|[€£¥₹¢]")
# Words that change the number before or after them, or add another.
_CHANGES = re.compile(
    r"\b(?:and|or|to(?! (?!the\b)[a-z])|plus|minus|negative|point|times|over|than|squared"
    r"|cubed|factorial|power|root"
    r"|least|most|below|above|under|almost|nearly|about|around|roughly|approximately|not|n't|no|wrong"
    r"|half|halves|thirds?|quarters?|(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand|million)ths?"
    r"|double|twice|triple|thrice|dozens?|score|gross|pairs?|hundreds?|k|thousands?|grand|permille"
    r"|lakhs?|crores?"
    r"|(?:m|b|tr|quadr)illions?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    r"|more|less|fewer|except|but|without|multiplied|divided|mod|modulo|base|versus|vs)\b",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[ /'-]")
# Units and articles of one letter, and names of constants and functions.
_LETTERS = frozenset("mgslhLVWNJKCFAa")
_SYMBOLS = frozenset(("pi", "sqrt", "sin", "cos", "tan", "log", "ln", "exp", "mod", "inf"))
_SENTENCE_END = re.compile(r"[.!](?:\s|$)")
_FRACTION = re.compile(r"\\[dt]?frac(?:\{([^{}]+)\}\{([^{}]+)\}|(\d)(\d))")
# Not the first digits of a longer exponent: 10^1234 is not 10^123.
_POWER_OF_TEN = re.compile(r"\s*(?:\\times|\\cdot|×)\s*10\s*\^\s*\{?([-+]?\d{1,3})\}?(?!\d)")
_WRAPPED = re.compile(r"\\(?:boxed|text|textbf|textrm|textit|mathrm|mathbf|mbox)\s?\{([^{}]*)\}")
_NO_SPACE = re.compile(r"\\!|(?<=,)\\[,;: ]")
_LATEX_SPACE = re.compile(r"\\[,;: ]|\\q?quad(?![a-z])|~")


def grade_number(text: str, truth: str) -> Grade:
    r"""Grade an answer as correct if it is the number `truth`.

    Text before `</think>` is ignored. The first rule that finds something decides: "tag"
    (`<answer>`), "boxed" (`\boxed`), "hashes" (`####`), "phrase" ("the answer is"), "bare" (the
    text is only a number). Several tags or boxes with different values are "ambiguous" and never
    correct. Currency and percent signs are units: 50% is 50, not 0.5; €5 is not $5.
    Raises DataError if the truth is no number.

    >>> accepted = "<answer>$1,200</answer>", r"\boxed{1200.0}", "#### 1200 m", "Answer: 2400/2"
    >>> [grade_number(text, "1200").correct for text in accepted]
    [True, True, True, True]
    >>> [grade_number(t, "1200").correct for t in ("about 1200", "The answer is 1.2 thousand")]
    [False, False]
    """
    expected = _truth(truth)
    answer, rule = _single(*found_answers(text))
    if answer is None:
        return Grade(False, None, rule)
    if rule == "phrase":
        answer = _SENTENCE_END.split(answer)[0]
    number = marked_number(answer)
    if number is None and rule != "bare":
        number = marked_number(without_lead(answer))
    # Not the last number of a text: a model that lists every candidate would be rewarded.
    if rule == "bare" and number is None:
        return Grade(False, None, "none")
    if number is not None and not truth.isdecimal() and (times := ratio(answer, truth)) != 1:
        number = None if times is None else Fraction(number) * times
    return Grade(number == expected, answer, rule)


def parse_number(text: str) -> Number | None:
    """The exact value of a text that is only a number, or None.

    Signs, thousands separators, $ € £ ¥ ₹ %, fractions, markdown emphasis, a final period and all
    digits of Unicode are understood. A text of more than 200 characters is None, as is n/0.

    >>> parse_number("**-$1,234.50**"), parse_number("2/6"), parse_number("1 of 3")
    (Decimal('-1234.50'), Fraction(1, 3), None)
    """
    if len(text) > _LONGEST:
        return None
    # Most answers are digits alone, of which the pattern would say the same.
    if text.isdecimal():
        return Decimal(text)
    match = _NUMBER.fullmatch(text.strip().strip("*_`$").strip().rstrip("."))
    return None if match is None else _value(match)


def _value(match: re.Match[str]) -> Number | None:
    """The value of a match of `_NUMBER`; None for a division by zero."""
    # The sign is part of the text: Decimal's minus operator rounds to 28 digits.
    sign = "-" if match["sign"] and match["sign"] != "+" else ""
    exponent = f"e{match['exponent']}" if match["exponent"] else ""
    number = Decimal(sign + _SEPARATORS.sub("", match["top"]) + exponent)
    if match["bottom"] is None:
        return number
    divisor = Decimal(_SEPARATORS.sub("", match["bottom"]))
    if not divisor:
        return None
    # Both parts have the sign: -1 4/5 is -1.8 and not -0.2.
    return Fraction(f"{sign}{match['whole'] or 0}") + Fraction(number) / Fraction(divisor)


def marked_number(text: str) -> Number | None:
    r"""The number in a text that was marked as the answer; LaTeX and one unit are allowed.

    >>> marked_number(r"x = \frac{3}{4}\text{ km}"), marked_number("18 dollars per day")
    (Fraction(3, 4), Decimal('18'))
    >>> marked_number("18 or 19"), marked_number("18 thousand")
    (None, None)
    """
    if text.isdecimal():
        return parse_number(text)
    text = SPELLED.sub("", text) if "(" in text else text
    text = _without_latex(text) if "\\" in text or "{" in text else text
    text = text.strip().rstrip(".").strip("*_`$").strip()
    lead = _LEAD.match(text)
    text = text[lead.end() :] if lead else text
    number = parse_number(text)
    if number is not None:
        return number
    match = _NUMBER.match(text)
    return _value(match) if match and _is_unit(text[match.end() :]) else None


def _is_unit(text: str) -> bool:
    """True for the name of a unit of up to six parts, such as " km" or " miles per hour".

    Letters without a space before them are variables, unless they are a unit such as "cm".
    """
    is_apart = text.lstrip("*_`$")[:1].isspace()
    text = text.strip().strip("*_`$").rstrip(".").strip()
    if _SIGN.fullmatch(text):
        return True
    # Only of units that are known: 18 x^2 is a term.
    base = _RAISED.sub("", text)
    if base != text and _PARTS.split(base)[-1].lower() not in UNIT_OF:
        return False
    text = base
    if _UNIT.fullmatch(text) is None or changes_number(text):
        return False
    parts = _PARTS.split(text)
    if not is_apart:
        return len(parts[0]) > 1 and parts[0].lower() in UNIT_OF
    return all(part in _LETTERS if len(part) == 1 else part not in _SYMBOLS for part in parts)


def changes_number(text: str) -> bool:
    """True for words that change a number beside them, such as "thousand", "half" or "not".

    >>> changes_number("thousand dollars"), changes_number("apples per day")
    (True, False)
    """
    return _CHANGES.search(text) is not None


def _without_latex(text: str) -> str:
    """The text with LaTeX boxes, fonts, fractions and spaces in plain notation."""
    text = repeated(text)
    text = _WRAPPED.sub(r" \1", _DEGREES.sub("°", _LATEX_SPACE.sub(" ", _NO_SPACE.sub("", text))))
    text = _POWER_OF_TEN.sub(r"e\1", text)
    # The blank keeps the whole part of a mixed number apart: 1\frac{4}{5} is not 14/5.
    text = _FRACTION.sub(lambda m: f" {m[1] or m[3]}/{m[2] or m[4]}", text)
    return text.replace("{,}", ",").replace("\\$", "$").replace("\\%", "%")


def _single(answers: list[str], rule: str) -> tuple[str | None, str]:
    """The answer of equal values, or None and "ambiguous" if they differ."""
    if len(answers) < 2:
        return (answers[0], rule) if answers else (None, rule)
    numbers = map(marked_number, answers)
    # An answer that is no number counts as its text, so that "85 or 86" differs from 85.
    values = {a if n is None else n for a, n in zip(answers, numbers, strict=True)}
    return (answers[-1], rule) if len(values) == 1 else (None, "ambiguous")


@lru_cache(maxsize=2**16)
def _truth(text: str) -> Number:
    """The number of a truth, once per text. Raises DataError if it is none."""
    number = parse_number(text)
    if number is None:
        raise DataError(f"the truth must be a number, got {text!r}")
    return number
