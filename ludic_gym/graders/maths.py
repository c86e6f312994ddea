r"""Grader of maths: an exact comparison first, then math-verify in a process of its own."""

import re
from functools import lru_cache

from ludic_gym.errors import DataError
from ludic_gym.graders.extract import Grade, extract
from ludic_gym.graders.numeric import marked_number
from ludic_gym.graders.worker import verdict

# A longer answer is not given to math-verify: it was not meant as a value.
LONGEST = 300
# Towers of powers, factorials and huge exponents, which would exceed the deadline.
_EXPLOSIVE = re.compile(r"!|\\uparrow|factorial|\^[^,;=]{0,40}\^|\*\*|\^\s*\{?\s*-?\s*\d{4}")
_BIG = re.compile(r"\d{30}")
# An answer with these may name two values, of which one may be right.
_HEDGES = re.compile(r"\\boxed|\b(?:or|and)\b")
_LEAD = re.compile(r"\s*[A-Za-z](?:\([a-z]\))?\s*=")
_SPACES = re.compile(r"\\[,;:! ]|\\(?:left|right)(?![a-z])|\s+")
_DOLLARS = re.compile(r"^\$+|\$+$")
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mbox)\s?\{([^{}]*)\}")
_FRACTIONS = re.compile(r"\\[dt]frac")
_BARE_FRACTION = re.compile(r"\\frac(\d)(\d)")


def grade_maths(text: str, truth: str) -> Grade:
    r"""Grade an answer as correct if it has the value of `truth`, both in LaTeX or plain text.

    The answer is found by `extract`. The rule names how it was found and compared: "boxed, exact"
    (equal texts or equal numbers), "boxed, math-verify", or why it was not compared: "boxed,
    refused" (too long, towers, factorials, two values in one answer) or "boxed, timeout".
    math-verify is needed only where the texts differ and are not both numbers.
    Raises DataError if the truth is blank, ConfigError where math-verify is needed and missing.

    >>> grade_maths(r"So $x = \boxed{\dfrac12}$.", r"\frac{1}{2}").rule
    'boxed, exact'
    >>> grade_maths("The answer is 0.5", "1/2").correct
    True
    >>> grade_maths(r"\boxed{9^{9^9}}", "1").rule
    'boxed, refused'
    """
    if not truth.strip():
        raise DataError(f"the truth must not be blank, got {truth!r}")
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    correct, how = compared(answer, truth)
    return Grade(correct, answer, f"{rule}, {how}")


@lru_cache(maxsize=2**14)
def compared(answer: str, truth: str) -> tuple[bool, str]:
    """True if both have one value, and the name of the comparison.

    The name is "exact", "refused", or the second part of `Worker.ask`: "math-verify", "timeout" or
    "crash". The last two are False. Raises ConfigError as `grade_maths` does.
    """
    # Most pairs end here or at the next step, without a round trip to another process.
    if plain(answer) == plain(truth):
        return True, "exact"
    numbers = marked_number(answer), marked_number(truth)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] == numbers[1], "exact"
    if is_refused(answer, truth):
        return False, "refused"
    return verdict(answer, truth)


def is_refused(answer: str, truth: str) -> bool:
    """True for an answer that is too expensive to evaluate, or has several values.

    >>> is_refused("100!", "7"), is_refused("3 or 4", "3"), is_refused("x = 3", "3")
    (True, True, False)
    """
    if len(answer) > LONGEST or _EXPLOSIVE.search(answer) or _BIG.search(answer):
        return True
    # An unbalanced brace would close the box that `math_server` puts around the answer.
    if answer.count("{") != answer.count("}") or (_HEDGES.search(answer) and answer != truth):
        return True
    return "=" in _LEAD.sub("", answer, count=1) and "=" not in truth


def plain(text: str) -> str:
    r"""The text without layout: dollars, spaces, text commands, degrees.

    >>> plain(r"$\dfrac12 \text{ cm}$")
    '\\frac{1}{2}cm'
    """
    text = _DOLLARS.sub("", text.strip().rstrip(".")).replace("{,}", ",")
    text = _FRACTIONS.sub(r"\\frac", _TEXT.sub(r"\1", text))
    text = _BARE_FRACTION.sub(r"\\frac{\1}{\2}", text)
    return _SPACES.sub("", text).replace("^\\circ", "").replace("^{\\circ}", "")
