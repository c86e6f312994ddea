"""Instructions that a program can verify (Zhou et al. 2023, arXiv:2311.07911).

A task's truth is a list of constraints in JSON; a reply is correct if it keeps all of them:

>>> truth = constraints_json([Constraint("words_at_most", count=3), Constraint("no_commas")])
>>> grade_constraints("Nice to meet you", truth).rule
'not kept: words_at_most'
>>> grade_constraints("Nice to see", truth).correct
True
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

from ludic_gym.errors import DataError
from ludic_gym.graders.extract import Grade, after_thought

_WORD = re.compile(r"\w+(?:['\u2019-]\w+)*")
_PART = re.compile(r"\w+")
# A full stop inside a number or an address ends no sentence: white space must follow.
_SENTENCE_END = re.compile(r"[.!?]+[\"'\u201d\u2019)\]]*(?:\s|$)")
_TITLE = re.compile(r"<<[^\n<>]*\w[^\n<>]*>>")
# A letter or digit inside: "[ ]" and "<<>>" are neither gap nor title.
_GAP = re.compile(r"\[[^\[\]\n]*\w[^\[\]\n]*\]")
_BULLET = re.compile(r"\s*[*-] +\S")
_SECTION = re.compile(r"Section (\d{1,3})")
_POSTSCRIPT = re.compile(r"^\s*P\.S\.\s*\w", re.MULTILINE)
_OF_WORDS = ("keywords", "forbidden", "frequency")
_FENCED = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Constraint:
    """One instruction.

    kind: one of `KINDS`, which defines the meaning of the other two.
    count: a number of words, paragraphs ...; ignored by kinds without a number.
    texts: the required or forbidden words, phrase or letter; ignored by kinds without a text.
    """

    kind: str
    count: int = 0
    texts: tuple[str, ...] = ()


Test = Callable[[str, Constraint], bool]


@dataclass(frozen=True, slots=True)
class Kind:
    """Wording of an instruction, and a test of texts that are not blank.

    wording: a format with {count} and {texts}, as the policy reads it.
    holds: True if a text keeps the constraint.
    """

    wording: str
    holds: Test


def word_count(text: str) -> int:
    """Number of words; "it's" and "well-known" are one each.

    >>> word_count("It's a well-known fact.")
    4
    """
    return len(_WORD.findall(text))


def sentences(text: str) -> int:
    """Number of sentences: pieces that contain a letter or digit, between the ends of sentences.

    >>> sentences("Pi is 3.14. Is it? Yes ...")
    3
    """
    return sum(1 for piece in _SENTENCE_END.split(text) if _PART.search(piece))


def paragraphs(text: str) -> int:
    r"""Number of paragraphs: runs of lines between blank lines.

    >>> paragraphs("One\nstill one\n\n\nTwo")
    2
    """
    return sum(
        1 for blank, _ in groupby(text.splitlines(), lambda line: not line.strip()) if not blank
    )


def occurrences(text: str, term: str) -> int:
    """Number of times that a term occurs as a whole, in any case and punctuation.

    >>> occurrences("The cat saw a catalogue. Cat's eyes!", "cat")
    2
    >>> occurrences("A well-known ice cream, well known!", "well-known")
    2
    """
    parts, wanted = _PART.findall(text.casefold()), _PART.findall(term.casefold())
    if len(wanted) == 1:
        return parts.count(wanted[0])
    starts = range(len(parts) - len(wanted) + 1) if wanted else ()
    return sum(parts[i : i + len(wanted)] == wanted for i in starts)


def is_json_object(text: str, constraint: Constraint) -> bool:
    """True if the text, or its fenced block, is one JSON object that is not empty.

    constraint: unused; a `Test` takes it.
    """
    fenced = _FENCED.fullmatch(text.strip())
    try:
        value = json.loads(fenced[1] if fenced else text)
    # RecursionError: ten thousand open brackets.
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool(value)


def in_case(changed: Callable[[str], str]) -> Test:
    """Test of a text that has letters, all of which `changed` leaves as they are.

    changed: `str.lower` or `str.upper`. "42" passes neither test.
    """
    return lambda text, c: text == changed(text) and text.lower() != text.upper()


def sections(text: str) -> list[str]:
    r"""The numbers of the lines "Section 1", "Section 2" ..., in order, as texts.

    >>> sections("Section 1\nOnce ...\nSection 2\n... upon a time. See Section 1")
    ['1', '2']
    """
    matches = (_SECTION.fullmatch(line.strip()) for line in text.splitlines())
    return [match[1] for match in matches if match]


def bullets(text: str) -> int:
    r"""Number of lines that begin with "* " or "- ".

    >>> bullets("* one\n  - two\n**bold**")
    2
    """
    return sum(1 for line in text.splitlines() if _BULLET.match(line))


def is_quoted(text: str, constraint: Constraint) -> bool:
    """True if the whole text is in double quotation marks, straight or curly.

    constraint: unused; a `Test` takes it.
    """
    return len(text) > 2 and text[0] in '"\u201c' and text[-1] in '"\u201d'


def at_least(size: Callable[[str], int]) -> Test:
    """Test of a size that is the constraint's count or more."""
    return lambda text, c: size(text) >= c.count


def exactly(size: Callable[[str], int]) -> Test:
    """Test of a size that is the constraint's count."""
    return lambda text, c: size(text) == c.count


def at_edge(has: Callable[[str, str], bool]) -> Test:
    """Test of `str.startswith` or `str.endswith` with the constraint's text, in any case."""
    return lambda text, c: has(text.casefold(), c.texts[0].casefold())


def contains(pattern: re.Pattern[str]) -> Test:
    """Test of a match anywhere in the text."""
    return lambda text, c: pattern.search(text) is not None


KINDS: Mapping[str, Kind] = {
    "words_at_least": Kind("Use at least {count} words.", at_least(word_count)),
    "words_at_most": Kind(
        "Use at most {count} words.", lambda text, c: word_count(text) <= c.count
    ),
    "sentences_at_least": Kind("Write at least {count} sentences.", at_least(sentences)),
    "sentences_exactly": Kind("Write exactly {count} sentences.", exactly(sentences)),
    "paragraphs": Kind(
        "Write exactly {count} paragraphs, with a blank line between them.", exactly(paragraphs)
    ),
    "keywords": Kind(
        "Use all of these words: {texts}.",
        lambda text, c: all(occurrences(text, term) for term in c.texts),
    ),
    "forbidden": Kind(
        "Use none of these words: {texts}.",
        lambda text, c: not any(occurrences(text, term) for term in c.texts),
    ),
    "frequency": Kind(
        "Use the word {texts} exactly {count} times.",
        lambda text, c: occurrences(text, c.texts[0]) == c.count,
    ),
    "letter_at_least": Kind(
        "Use the letter {texts} at least {count} times.",
        lambda text, c: text.casefold().count(c.texts[0].casefold()) >= c.count,
    ),
    "lower_case": Kind("Write everything in lower case letters.", in_case(str.lower)),
    "upper_case": Kind("Write everything in capital letters.", in_case(str.upper)),
    "no_commas": Kind("Do without any commas.", lambda text, c: "," not in text),
    "starts_with": Kind("Begin with exactly these words: {texts}.", at_edge(str.startswith)),
    "ends_with": Kind(
        "End with exactly these words, and nothing after them: {texts}", at_edge(str.endswith)
    ),
    "json": Kind("Give all of the answer as one JSON object.", is_json_object),
    "bullets": Kind(
        'Make exactly {count} bullet points: lines that begin with "* ".', exactly(bullets)
    ),
    "title": Kind(
        "Give it a title in double angle brackets, such as <<my day>>.", contains(_TITLE)
    ),
    "placeholders": Kind(
        "Leave at least {count} gaps to be filled in, in square brackets, such as [name].",
        at_least(lambda text: len(_GAP.findall(text))),
    ),
    "postscript": Kind(
        "Add a postscript at the end, on a line that begins with P.S.", contains(_POSTSCRIPT)
    ),
    "quoted": Kind("Put double quotation marks around all of the answer.", is_quoted),
    "sections": Kind(
        'Divide it into {count} sections, which the lines "Section 1", "Section 2" ... begin.',
        lambda text, c: sections(text) == [str(i + 1) for i in range(c.count)],
    ),
}


def wording(constraint: Constraint) -> str:
    """The instruction as a sentence.

    >>> wording(Constraint("keywords", texts=("sun", "sea")))
    'Use all of these words: sun, sea.'
    """
    texts = ", ".join(constraint.texts)
    return KINDS[constraint.kind].wording.format(count=constraint.count, texts=texts)


def constraints_kept(text: str, constraints: Sequence[Constraint]) -> tuple[bool, ...]:
    """For each constraint, True if the text keeps it; a blank text keeps none.

    >>> constraints_kept("Sure!", [Constraint("words_at_most", count=2), Constraint("title")])
    (True, False)
    """
    text = text.strip()
    return tuple(bool(text) and KINDS[c.kind].holds(text, c) for c in constraints)


def constraints_json(constraints: Sequence[Constraint]) -> str:
    """The constraints as a truth for `grade_constraints`: a list of objects in JSON.

    >>> constraints_json([Constraint("forbidden", texts=("very",))])
    '[{"kind": "forbidden", "count": 0, "texts": ["very"]}]'
    """
    return json.dumps([asdict(constraint) for constraint in constraints])


@lru_cache(maxsize=2**12)
# Every reply to a row has the same truth, and groups of rollouts repeat rows.
def read_constraints(truth: str) -> tuple[Constraint, ...]:
    """The constraints in a truth from `constraints_json`.

    Raises DataError for any other text, an unknown kind, a kind that lacks its texts, and [].
    """
    try:
        constraints = tuple(_constraint(dict(fields)) for fields in json.loads(truth))
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"the truth must be constraints in JSON, got {truth[:200]!r}") from error
    if not constraints:
        raise DataError("the truth must name at least one constraint, got []")
    return constraints


def _constraint(fields: Mapping[str, Any]) -> Constraint:
    """The constraint of one object. Raises KeyError for a kind that does not exist."""
    texts = tuple(map(str, fields.get("texts", ())))
    constraint = Constraint(fields["kind"], int(fields.get("count", 0)), texts)
    # An empty text is in every text, and a reply to it would be correct whatever it says.
    if "{texts}" in KINDS[constraint.kind].wording and not all(texts or [""]):
        raise ValueError(f"{constraint.kind} needs texts, got {texts!r}")
    if constraint.kind in _OF_WORDS and not all(map(_PART.search, texts)):
        raise ValueError(f"{constraint.kind} needs words, got {texts!r}")
    return constraint


def grade_constraints(text: str, truth: str) -> Grade:
    """Grade a reply as correct if it keeps every constraint of `truth`.

    The answer is all text after `</think>`. The rule names the constraints that are not kept ("not
    kept: title, json"), or is "kept", "echo" for a reply that repeats an instruction, "unfinished"
    or "none".
    truth: see `constraints_json`.
    Raises DataError for a truth without constraints.

    >>> truth = constraints_json([Constraint("title")])
    >>> grade_constraints("<think>A sea?</think><<A day at sea>> It was calm.", truth).rule
    'kept'
    >>> grade_constraints(wording(Constraint("title")), truth).rule  # it has a title in brackets
    'echo'
    """
    constraints = read_constraints(truth)
    answer, rule = after_thought(text)
    if answer is None:
        return Grade(False, None, rule)
    # "Use at least 300 words" is no text of its own, but can keep "keywords" and "title".
    spaced = " ".join(answer.casefold().split())
    if any(" ".join(wording(c).casefold().split()) in spaced for c in constraints):
        return Grade(False, answer, "echo")
    held = constraints_kept(answer, constraints)
    broken = [c.kind for c, holds in zip(constraints, held, strict=True) if not holds]
    return Grade(not broken, answer, f"not kept: {', '.join(broken)}" if broken else "kept")
