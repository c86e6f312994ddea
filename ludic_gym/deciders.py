"""Solvers of tasks by their text alone, for audits: arithmetic, syllogisms, knights and knaves.

None knows an environment: each reads the text of a task and returns the right replies, in several
forms, or none if it cannot read the task with certainty.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product

# Ends of these texts round, or count in other ways.
_ROUNDED = re.compile(r"round|significant|decimal place|nearest|modul|remainder|hexa|binary|base ")
_ASKED = re.compile(
    r"(?:what is|calculate|compute|evaluate|solve|problem|multiplication|how much is|result of)"
    r"[^\n\d(]{0,60}?((?:[-(]\s*)*\d[\d\s.+*/×÷()−-]*)(?:=\s*\?*|[.?]|$)",
    re.IGNORECASE,
)
_OPERATORS: Mapping[type[ast.AST], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST = 400


def arithmetic(text: str) -> tuple[str, ...]:
    """The value of the one expression that the text asks for.

    >>> arithmetic("What is 12 + 3 * (4 - 2)?"), arithmetic("Calculate 7 / 2.")
    (('18',), ('3.5',))
    >>> arithmetic("What is 2 + 2, rounded?"), arithmetic("Ann has 2 + 2 nuts.")
    ((), ())
    """
    asked = _ASKED.findall(text)
    if len(asked) != 1 or _ROUNDED.search(text.casefold()):
        return ()
    source = asked[0].translate(str.maketrans("×÷−", "*/-")).strip().rstrip(".")
    # A number alone asks for no sum, and two that stand side by side are no expression.
    if len(re.findall(r"\d+(?:\.\d+)?", source)) < 2 or len(source) > LONGEST:
        return ()
    try:
        value = _value(ast.parse(source, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return ()
    return _written(value)


def _value(node: ast.expr) -> Fraction:
    """The exact value. Raises ValueError for anything but numbers and the four operations."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(ast.dump(node))


def _written(value: Fraction) -> tuple[str, ...]:
    """A decimal that ends; none for one that does not."""
    if value.denominator == 1:
        return (str(value.numerator),)
    digits = next((n for n in range(1, 19) if (value * 10**n).denominator == 1), None)
    return () if digits is None else (f"{float(value):.{digits}f}",)


Sentence = tuple[str, str, str]
"""Quantity ("all", "no", "some", "some not") and the two kinds."""

_SENTENCE = re.compile(r"\b(all|no|some) (\w+) are (not )?(\w+)", re.IGNORECASE)
_CONCLUSION = re.compile(r"follow(?:s)? (?:logically )?that\W*|\btherefore\W*|\bconclu\w+\W*", re.I)
# Things of three kinds are of eight types, and a world has things of some of the types.
_TYPES = tuple(product((False, True), repeat=3))
_WORLDS = [
    tuple(kind for kind, exists in zip(_TYPES, bits, strict=True) if exists)
    for bits in product((False, True), repeat=len(_TYPES))
]


def syllogism(text: str) -> tuple[str, ...]:
    """Yes or No for a conclusion from two sentences on three kinds.

    Decided by all worlds of three kinds, with empty kinds and without. () if the readings differ.

    >>> syllogism("All bees are ants. All ants are cats. Does it follow that all bees are cats?")
    ('Yes',)
    >>> syllogism("All bees are ants. Some ants are cats. Does it follow that some bees are cats?")
    ('No',)
    """
    parts = _CONCLUSION.split(text)
    given, then = _sentences(parts[0]), _sentences(parts[-1])
    if len(parts) != 2 or len(given) != 2 or len(then) != 1:
        return ()
    verdicts = follows(given, then[0])
    return ("Yes" if verdicts.pop() else "No",) if len(verdicts) == 1 else ()


def _sentences(text: str) -> list[Sentence]:
    return [
        (quantity.casefold() + (" not" if negated else ""), one.casefold(), other.casefold())
        for quantity, one, negated, other in _SENTENCE.findall(text)
    ]


def follows(given: Sequence[Sentence], then: Sentence) -> set[bool]:
    """True or False for each reading, with empty kinds and without; {} for over three kinds."""
    names = sorted({name for _, *both in (*given, then) for name in both})
    if len(names) > 3:
        return set()
    places = {name: place for place, name in enumerate(names)}
    full = [w for w in _WORLDS if all(any(one[i] for one in w) for i in range(len(names)))]
    return {
        all(
            _holds(world, then, places)
            for world in worlds
            if all(_holds(world, sentence, places) for sentence in given)
        )
        for worlds in (_WORLDS, full)
    }


def _holds(
    world: Sequence[tuple[bool, ...]], sentence: Sentence, places: Mapping[str, int]
) -> bool:
    quantity, one, other = sentence
    others = [thing[places[other]] for thing in world if thing[places[one]]]
    return {
        "all": all(others),
        "no": not any(others),
        "some": any(others),
        "some not": not all(others),
        "all not": not any(others),
        "no not": all(others),
    }[quantity]


_TRUTHFUL = re.compile(r"(\w+?)s?,? (?:who )?always tells? the truth", re.IGNORECASE)
_LYING = re.compile(r"(\w+?)s?,? (?:who )?always lies?\b", re.IGNORECASE)
_CLAIM = re.compile(r"(\w+) is (not )?an? (\w+)")
_SAID = re.compile(r'"([^"]+)"|\bthat (.+)$')
# A claim in quotes; a form of answers has a slash for the choice.
_SPOKEN = re.compile(r'"[^"/]+"|\bthat .+ is ')
_NUMBERED = re.compile(r"(?i)of all of us, the number of (\w+?)s is (\d+)")
_COUNTED = re.compile(r"(?i)at least one of (\w+) and (\w+) is an? (\w+)")
_KIND = re.compile(r"(\w+) and (\w+) are of (the same|different) kinds?")
Kinds = Mapping[str, bool]


def knights(text: str) -> tuple[str, ...]:
    """The kind of each speaker, of those who always tell the truth and those who always lie.

    >>> rule = "A knight always tells the truth, a knave always lies. "
    >>> knights(rule + 'Ann says: "Bob is a knave." Bob says: "Ann is a knave and Bob is a knave."')
    ('knight, knave', 'Ann is a knight, and Bob is a knave')
    """
    truthful, lying = _TRUTHFUL.search(text), _LYING.search(text)
    lines = re.split(r"(?<=[.?])\s+|(?<=\.\")\s+|\n", text)
    spoken = [said(line) for line in lines if _SPOKEN.search(line)]
    claims = [claim for claim in spoken if claim is not None]
    # One claim that is not understood leaves all open.
    if len(claims) < len(spoken):
        return ()
    names = [*dict.fromkeys(name for name, _ in claims)]
    roles = {role.casefold() for _, claim in claims for *_, role in _CLAIM.findall(claim)}
    if truthful is None or lying is None or not 1 < len(names) <= 8 or len(claims) != len(names):
        return ()
    honest, liar = truthful[1].casefold(), lying[1].casefold()
    if not roles <= {honest, liar}:
        return ()
    solutions = []
    for bits in product((True, False), repeat=len(names)):
        kinds = dict(zip(names, bits, strict=True))
        values = [is_true(claim, kinds, honest) for _, claim in claims]
        if None in values:
            return ()
        if all(kinds[name] == value for (name, _), value in zip(claims, values, strict=True)):
            solutions.append(kinds)
    if len(solutions) != 1:
        return ()
    return _kinds_written(solutions[0], honest, liar)


def said(line: str) -> tuple[str, str] | None:
    """Speaker and claim of a line; None unless it has one of each."""
    claim = _SAID.search(line)
    if claim is None:
        return None
    speakers = re.findall(r"\b[A-Z]\w+(?=\b)", line[: claim.start()] + line[claim.end() :])
    speakers = [name for name in speakers if name not in ("In", "As", "According", "So", "Format")]
    return (speakers[0], (claim[1] or claim[2]).strip(" .,")) if len({*speakers}) == 1 else None


def is_true(claim: str, kinds: Kinds, honest: str) -> bool | None:
    """The truth of a claim, None if it cannot be read. kinds: True for each who is honest."""
    claim = claim.strip()
    joints: Sequence[tuple[str, Callable[[bool, bool], bool]]] = (
        (r"^if (.+) then (.+)$", lambda one, other: not one or other),
        (r"^(.+) if and only if (.+)$", operator.eq),
        (r"^(.+) or (.+)$", operator.or_),
        (r"^(.+ is .+) and (.+)$", operator.and_),
    )
    for form, join in joints:
        if match := re.match(form, claim):
            one, other = (is_true(part, kinds, honest) for part in match.groups())
            return None if one is None or other is None else join(one, other)
    if (match := _COUNTED.fullmatch(claim)) and {match[1], match[2]} <= kinds.keys():
        wanted = match[3].casefold() == honest
        return wanted in (kinds[match[1]], kinds[match[2]])
    if (match := _KIND.fullmatch(claim)) and {match[1], match[2]} <= kinds.keys():
        return (kinds[match[1]] == kinds[match[2]]) == (match[3] == "the same")
    if match := _NUMBERED.fullmatch(claim):
        wanted = match[1].casefold() == honest
        return sum(kind == wanted for kind in kinds.values()) == int(match[2])
    match = _CLAIM.fullmatch(claim)
    if match is None or match[1] not in kinds:
        return None
    return (kinds[match[1]] == (match[3].casefold() == honest)) != bool(match[2])


def _kinds_written(kinds: Kinds, honest: str, liar: str) -> tuple[str, ...]:
    roles = {name: honest if value else liar for name, value in kinds.items()}
    sentences = [
        f"{name} is {'an' if role[0] in 'aeiou' else 'a'} {role}" for name, role in roles.items()
    ]
    return ", ".join(roles.values()), ", and ".join(sentences)


DECIDERS: Mapping[str, Callable[[str], tuple[str, ...]]] = {
    "arithmetic": arithmetic,
    "syllogism": syllogism,
    "knights and knaves": knights,
}
"""Right replies to a text, () if it is none of the kind, by the name of the kind."""
