"""Graders of texts: a choice, equal words, or mostly equal words."""

import re
import unicodedata
from collections import Counter
from functools import lru_cache

from ludic_gym.errors import DataError
from ludic_gym.graders.extract import Grade, extract

_LEAD = (
    r"(?:(?:thus|so|therefore|hence)\b,?\s*)?(?:i\s+(?:would\s+)?(?:choose|pick|select)\s+"
    r"|it(?:\s+i|'|\u2019)s\s+|(?:(?:my|the)\s+)?(?:(?:final|correct|right|best|selected)\s+)*"
    r"(?:answer|option|choice|solution|ans)(?:\s+(?:is|must\s+be))?"
    r"(?:\"?\s*[:=\n]\s*\"?|\s+[-\u2013\u2014]?\s*))?(?:(?:option|choice)\s+)?"
)
_CHOICE = re.compile(
    rf"{_LEAD}\(?(?P<letter>[A-Za-z])\)?(?P<rest>(?:[.:),](?=\s|$)|\s[-\u2013\u2014]|\s*\n"
    r"|\s+(?=because\b|since\b)|\s+is\s+(?:the\s+)?(?:correct|right|best|answer)\b).*)?",
    re.DOTALL | re.IGNORECASE,
)
# What comes before the last of these is a reason.
_CLAIM = re.compile(r"\b(?:correct|right|best)\s+(?:option|choice)(?:\s+is\b|\s?:)", re.IGNORECASE)
_FONT = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s?\{([^{}]*)\}")
_LAYOUT = re.compile(r"\\[,;:! ]|\\q?quad(?![a-z])|~")
_REASON = re.compile(r"\b(?:because|since)\b|\n", re.IGNORECASE)
# A second letter after the first, or a denial; "Vitamin C" is the text of an option.
_SECOND = re.compile(
    r"^\W*[A-Z]\)?(?:[.:),/]|\s*$|\s+(?i:or|and)\b)|\(?\b[A-Z][):]"
    r"|(?:\b(?i:or|and|not|maybe)|[,/;])\s*(?:maybe\s*)?\(?[A-Z]\)?\s*(?:[.,;:)]|$)"
    r"|^\W*is\s+(?:wrong|incorrect|false|not)\b"
)
# In a text or a reason: a line of its own, a correction, or another letter called the answer.
_RIVAL = re.compile(
    r"^\W*(?P<line>[A-Z])\)?(?:[.:),/]|\s*$)|(?P<doubt>^\W*(?i:or|and)\b|\b(?i:no,|wait\b|maybe\b|actually\b))"
    r"|(?i:answer|option|choice|so)\s+(?:is|must\s+be)\s+\(?(?P<claim>[A-Z])\b"
    r"|\b(?P<right>[A-Z])\)?\s+is\s+(?:also\s+)?(?:the\s+)?(?:correct|right|best|better)\b",
    re.MULTILINE,
)
# Punctuation inside a number changes its value.
_IN_NUMBER = re.compile(r"(?<=\d)[./:,-](?=\d)|(?<![\w.])-(?=\d)")
# Around a letter, also in \boxed{[B]} and <answer>"B"</answer>, and as a bullet.
_AROUND = "*_`$.,; \"'[]{}\n#>-✅✓✔"
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"))
# Three digits and no fourth: the comma of "1,2345" separates no thousands.
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SIGNS = {"$": "dollars", "€": "euros", "£": "pounds", "¥": "yen", "₹": "rupees", "%": "percent"}
_SCALE = re.compile(r"\b(?:hundred|thousand|(?:m|b|tr)illion)s?\b")
_AMOUNT = re.compile(
    r"(?:us)?([$€£¥₹])\s?(\d[\d.]*(?:\s(?:thousand|[mb]illion))?)|(?<=\d)\s?([$€£¥₹%])"
)
_HEDGES = re.compile(r"[,;/|?\n]|\b(?:or|and|not|no|nor|neither|either|maybe|n't)\b")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
# The share of words that makes an answer correct.
ENOUGH = 0.8


def grade_choice(text: str, truth: str) -> Grade:
    r"""Grade an answer as correct if it is the letter `truth`.

    Raises DataError if the truth is not one capital letter.

    >>> replies = "B", "(b)", "B.", "B: Paris", r"\boxed{B}", "B or C"
    >>> [grade_choice(reply, "B").correct for reply in replies]
    [True, True, True, True, True, False]
    """
    # Not isupper(), which letters pass that no reply could match.
    if not (len(truth) == 1 and "A" <= truth <= "Z"):
        raise DataError(f"the truth must be a letter from A to Z, got {truth!r}")
    answer, rule = extract(text)
    plain = unicodedata.normalize("NFKC", answer or "").replace("**", "")
    plain = _LAYOUT.sub(" ", _FONT.sub(r"\1", plain)) if "\\" in plain else plain
    # Most replies are shorter than a sentence.
    plain = (_CLAIM.split(plain)[-1] if len(plain) > 20 else plain).strip(_AROUND)
    # The whole answer: "B. Paris" is a choice with its text, "Both" is none.
    match = _CHOICE.fullmatch(plain)
    is_right = match is not None and match["letter"].upper() == truth and _is_only(match)
    return Grade(is_right, answer, rule)


def _is_only(choice: re.Match[str]) -> bool:
    """True for a letter without a second one in its text, or as the answer in its reason."""
    letter, rest = choice["letter"], choice["rest"] or ""
    # Where letters are written small, so is a second one.
    rest = rest.upper() if letter.islower() else rest
    if _SECOND.search(_REASON.split(rest)[0].lstrip(".:), ")):
        return False
    rivals = _RIVAL.finditer(rest)
    return all(rival[rival.lastgroup or 0] == letter.upper() for rival in rivals)


def grade_exact(text: str, truth: str) -> Grade:
    r"""Grade an answer as correct if it is an accepted one, that is, a line of `truth`.

    Case, Unicode form, punctuation, articles and white space are ignored (Rajpurkar et al. 2016,
    arXiv:1606.05250), as are the commas of thousands: $1,200 is 1200, and not €1,200.
    Raises DataError if the truth has no line, or one without a letter or digit.

    >>> grade_exact("The answer is the U.S.A.", "USA\nUnited States").correct
    True
    >>> grade_exact("USA, I think", "USA\nUnited States").correct
    False
    """
    answer, rule = extract(text)
    accepted = _accepted(truth)
    words = _FONT.sub(r"\1", answer or "")
    correct = answer is not None and any(_is_same(words, right) for right in accepted)
    return Grade(correct, answer, rule)


def _is_same(answer: str, truth: str) -> bool:
    """True for equal words, also if only one of them has a currency."""
    short, long = sorted((normalised(answer), normalised(truth)), key=len)
    amount, _, sign = long.rpartition(" ")
    return short == long or (short == amount != "" and sign in _SIGNS.values())


def grade_f1(text: str, truth: str) -> Grade:
    r"""Grade an answer as correct if its words have an F1 of 0.8 or more with an accepted one.

    An answer with a comma, a slash, "or", "not" or similar, which the accepted one lacks, may mean
    two things, or the opposite. It is not correct; nor is one with a further name or number, such
    as "New York City Boston". Raises DataError as `grade_exact` does.

    >>> grade_f1("the old Eiffel Tower", "Eiffel Tower\nTour Eiffel").correct  # F1 is 0.8
    True
    >>> grade_f1("not the Eiffel Tower", "Eiffel Tower").correct
    False
    """
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    # "Paris, Lyon" has a high F1 with "Paris", but leaves the choice to the grader.
    content = _FONT.sub(r"\1", answer)
    words = _THOUSANDS.sub("", content.casefold())
    hedges, scales = set(_HEDGES.findall(words)), _SCALE.findall(words)
    close = (
        _is_same(content, right)
        or (
            word_f1(content, right) >= ENOUGH
            and hedges <= set(_HEDGES.findall(_THOUSANDS.sub("", right.casefold())))
            and scales == _SCALE.findall(right.casefold())
            and not adds_name(content, right)
        )
        for right in _accepted(truth)
    )
    return Grade(any(close), answer, rule)


def adds_name(answer: str, truth: str) -> bool:
    """True if the answer has a name or a number that the truth lacks.

    A name begins with a capital; so may the first word of the answer to a truth without names. An
    answer without capitals adds nothing to a truth with names, because its names are not known.

    >>> adds_name("New York City Boston", "New York City"), adds_name("old red Barn", "red barn")
    (True, False)
    >>> adds_name("new york city boston", "New York City")
    True
    """
    right = {*normalised(truth).split(), "a", "an", "the"}
    further = [word for word in answer.split() if not set(normalised(word).split()) <= right]
    has_names = truth != truth.lower()
    if has_names and answer == answer.lower():
        return bool(further)
    first = answer.split()[:1]
    return any(
        any(c.isdigit() for c in word) or (word[0].isupper() and (has_names or [word] != first))
        for word in further
    )


def word_f1(answer: str, truth: str) -> float:
    """The harmonic mean of precision and recall of the answer's words, 0 to 1.

    >>> word_f1("big red house", "red house")  # precision 2/3, recall 1
    0.8
    """
    words, right = Counter(normalised(answer).split()), Counter(normalised(truth).split())
    # Two texts without words would divide by 0.
    return 2 * (words & right).total() / max(words.total() + right.total(), 1)


@lru_cache(maxsize=2**14)
def normalised(text: str) -> str:
    """The words in lower case, without articles and punctuation, one blank between them.

    Punctuation that changes a number stays: 3.5 is not 35. Articles stay where there is no other
    word: blood has the type A.

    >>> normalised("The  Who's, café!"), normalised("1,000 to -3.5"), normalised("$5 million")
    ('whos café', '1000 to -3.5', '5 million dollars')
    """
    # NFKC first: full-width letters and ligatures have a case and a category only after it.
    # Commas of thousands go first, because `_IN_NUMBER` keeps those that are left.
    text = unicodedata.normalize("NFKC", text).translate(_DASHES)
    text = _THOUSANDS.sub("", text.casefold())
    if not _SIGNS.keys().isdisjoint(text):
        text = _AMOUNT.sub(lambda m: f"{m[2] or ''} {_SIGNS[m[1] or m[3]]}", text)
    inside = {match.start() for match in _IN_NUMBER.finditer(text)}
    stripped = "".join(
        c
        for i, c in enumerate(text)
        # The backtick of Markdown is a symbol to Unicode.
        if i in inside or not (c == "`" or unicodedata.category(c).startswith("P"))
    )
    return " ".join(_ARTICLES.sub(" ", stripped).split() or stripped.split())


def _accepted(truth: str) -> list[str]:
    """The lines of a truth. Raises DataError for one without a letter or digit: "" would match."""
    lines = truth.splitlines()
    if not lines or not all(map(normalised, lines)):
        raise DataError(f"every accepted answer needs a letter or digit, got {truth!r}")
    return lines
