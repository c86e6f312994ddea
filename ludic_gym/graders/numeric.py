"""Grades texts whose answer is a number: exact arithmetic, bounded time, nothing evaluated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from ludic_gym.errors import DataError
from ludic_gym.graders.extract import Grade

Number = Decimal | Fraction

# Longer than any answer, short enough that no quantifier below can be made to run far.
_LONGEST = 200
_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+\u2212\u2013]?)\s?[$€£]?\s?(?P<top>{_UNSIGNED})"
    rf"(?:\s?/\s?(?P<bottom>{_UNSIGNED}))?\s?%?"
)
# A marked answer may say what it counts: "x = 18 dollars per day".
_LEAD = re.compile(r"(?:[A-Za-z]\s?)?=\s?")
_UNIT = re.compile(r"[^\W\d_][^\W\d_ %/'.-]*(?:[ /'-][^\W\d_]+){0,5}")
# Words that change the number before them, or add another.
_NO_UNITS = re.compile(
    r"\b(?:and|or|to|plus|minus|point|half|dozens?|hundreds?|k|thousands?|(?:m|b|tr)illions?)\b",
    re.IGNORECASE,
)
_TAG = re.compile(rf"<answer>([^<]{{1,{_LONGEST}}})</answer>", re.IGNORECASE)
_PHRASE = re.compile(r"\banswer(?: is\b|\s?:|\s?=)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
_FRACTION = re.compile(r"\\[dt]?frac(?:\{([^{}]+)\}\{([^{}]+)\}|(\d)(\d))")
_WRAPPED = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s?\{([^{}]*)\}")
_LATEX_SPACE = re.compile(r"\\[,;:! ]|~")


def grade_number(text: str, truth: str) -> Grade:
    r"""Whether the answer in `text` is the number `truth`.

    What stands before `</think>` is ignored. The rules, the first that finds something decides:
    "tag" (`<answer>`), "boxed" (`\boxed`), "hashes" (`####`), "phrase" ("the answer is"), "bare"
    (the text is nothing but a number). Several tags or boxes with different values are
    "ambiguous" and never correct. Currency and percent signs are units: 50% is 50, not 0.5.
    Raises DataError if the truth is no number.
    """
    expected = _truth(truth)
    answer, rule = _extract(text)
    if answer is None:
        return Grade(False, None, rule)
    number = parse_number(answer) if rule == "bare" else marked_number(answer)
    return Grade(number is not None and number == expected, answer, rule)


def parse_number(text: str) -> Number | None:
    """The exact value of a text that is nothing but a number, or None.

    Understands signs, thousands separators, $ € £ %, fractions, markdown emphasis and a final
    period; any digits that Unicode knows.
    """
    if len(text) > _LONGEST:
        return None
    match = _NUMBER.fullmatch(text.strip().strip("*_`$").strip().rstrip("."))
    return None if match is None else _value(match)


def _value(match: re.Match[str]) -> Number | None:
    # The sign goes in here: Decimal's own minus rounds to 28 digits.
    sign = "-" if match["sign"] and match["sign"] != "+" else ""
    number = Decimal(sign + match["top"].replace(",", ""))
    if match["bottom"] is None:
        return number
    divisor = Decimal(match["bottom"].replace(",", ""))
    return Fraction(number) / Fraction(divisor) if divisor else None


def marked_number(text: str) -> Number | None:
    """The number in a text that was marked as the answer: LaTeX and one unit are allowed."""
    text = _without_latex(text) if "\\" in text or "{" in text else text
    text = text.strip().strip("*_`$").strip()
    lead = _LEAD.match(text)
    text = text[lead.end() :] if lead else text
    number = parse_number(text)
    if number is not None:
        return number
    match = _NUMBER.match(text)
    return _value(match) if match and _is_unit(text[match.end() :]) else None


def _is_unit(text: str) -> bool:
    text = text.strip().strip("*_`$").rstrip(".").strip()
    return _UNIT.fullmatch(text) is not None and not _NO_UNITS.search(text)


def _without_latex(text: str) -> str:
    text = _WRAPPED.sub(r"\1", _LATEX_SPACE.sub("", text))
    text = _FRACTION.sub(lambda m: f"{m[1] or m[3]}/{m[2] or m[4]}", text)
    return text.replace("{,}", ",").replace("\\$", "$").replace("\\%", "%")


def _extract(text: str) -> tuple[str | None, str]:
    """What is taken for the answer, and by which rule."""
    _, closed, said = text.rpartition("</think>")
    if not closed and "<think>" in said:
        return None, "unfinished"
    if "</" in said and (tags := _TAG.findall(said)):
        return _only(tags, "tag")
    if "\\boxed" in said and (boxes := _boxes(said)):
        return _only(boxes, "boxed")
    if "####" in said:
        return _first_line(said.rpartition("####")[2]), "hashes"
    if len(pieces := _PHRASE.split(said)) > 1:
        return _SENTENCE_END.split(_first_line(pieces[-1]))[0], "phrase"
    said = said.strip()
    return (said, "bare") if parse_number(said) is not None else (None, "none")


def _first_line(text: str) -> str:
    """What follows a mark: the next line that is not blank."""
    return text[: 2 * _LONGEST].lstrip(" :\n").partition("\n")[0].rstrip()


def _only(answers: list[str], rule: str) -> tuple[str | None, str]:
    """The answer that all agree on."""
    answers = [answer.strip() for answer in answers]
    if len(answers) > 1 and len(set(_values(answers))) > 1:
        return None, "ambiguous"
    return answers[-1], rule


def _values(answers: Iterable[str]) -> Iterable[Number | str]:
    for answer in answers:
        number = marked_number(answer)
        yield answer if number is None else number


def _boxes(text: str) -> list[str]:
    r"""The contents of every closed `\boxed{...}`; an unclosed one counts for nothing."""
    contents = []
    for piece in text.split("\\boxed")[1:]:
        inside = _braced(piece[: _LONGEST + 2].lstrip())
        if inside:
            contents.append(inside)
    return contents


def _braced(text: str) -> str | None:
    """What the brace that opens the text holds, or None if it is not closed."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[1:i]
    return None


@lru_cache(maxsize=2**16)
def _truth(text: str) -> Number:
    number = parse_number(text)
    if number is None:
        raise DataError(f"the truth must be a number, got {text!r}")
    return number
