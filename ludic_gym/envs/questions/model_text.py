"""A text that meets given constraints, assembled from fixed pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice, product

from ludic_gym.errors import NoOracle
from ludic_gym.graders.constraints import Constraint, kept

STARTS = ("Here is what happened", "It began like this", "Let us be brief")
FILLER = (
    "this", "is", "not", "so", "hard", "to", "do", "but", "it", "takes", "some", "time", "and",
    "a", "little", "patience", "so", "we", "start", "soon", "then", "look", "at", "what", "comes",
    "next", "to", "see", "how", "the", "rest", "turns", "out",
)  # fmt: skip
# Numbers of filler sentences to try, and numbers of words in each.
SENTENCES = range(13)
LENGTHS = (3, 5, 7, 9, 11, 13, 16, 20, 28, 40, 60)

By = Mapping[str, Constraint]
Lines = Mapping[str, Callable[[Constraint], Sequence[str]]]
# Kind -> the lines that meet a constraint, in the order of the text.
OPENINGS: Lines = {
    "starts_with": lambda c: c.texts[:1],
    "title": lambda c: ["<<plain words>>"],
    "sections": lambda c: [f"Section {i + 1}" for i in range(c.count)],
    "bullets": lambda c: ["* one more thing"] * c.count,
    "keywords": lambda c: [" ".join(c.texts)],
    "frequency": lambda c: [" ".join(c.texts * c.count)],
    "placeholders": lambda c: [" ".join(["[name]"] * c.count)],
}
CLOSINGS: Lines = {
    "postscript": lambda c: ["P.S. take care"],
    "ends_with": lambda c: c.texts[:1],
}


def model_text(constraints: Sequence[Constraint], words: Sequence[str] = ()) -> str:
    """The first text, from short to long, that meets all constraints and has the words.

    Raises NoOracle if none does.
    """
    by = {constraint.kind: constraint for constraint in constraints}
    for count, length in product(SENTENCES, LENGTHS):
        text = assembled(by, count, length, words)
        if all(kept(text, constraints)):
            return text
    raise NoOracle(f"no text is known that meets all of {constraints}")


def assembled(by: By, count: int, length: int, words: Sequence[str] = ()) -> str:
    """The pieces that the constraints need, and `count` sentences of `length` words."""
    sentences = [f"{' '.join(islice(cycle(FILLER), i, i + length))}." for i in range(count)]
    topical = [" ".join(words)] if words else []
    lines = [*pieces(OPENINGS, by), *topical, *sentences, *pieces(CLOSINGS, by)]
    if "json" in by:
        text = json.dumps({"text": " ".join(lines)})
    else:
        text = in_paragraphs(lines, by["paragraphs"].count if "paragraphs" in by else 1)
    if "quoted" in by:
        text = f'"{text}"'
    # Last, because the case of all pieces must change.
    text = text.lower() if "lower_case" in by else text
    return text.upper() if "upper_case" in by else text


def pieces(lines: Lines, by: By) -> Iterator[str]:
    """The lines of the kinds that are wanted."""
    for kind, made in lines.items():
        if kind in by:
            yield from made(by[kind])


def in_paragraphs(lines: Sequence[str], count: int) -> str:
    """The lines in `count` paragraphs, with filler if there are too few lines."""
    # Added in front, because the last lines may be an ending that must stay last.
    lines = [*["and so"] * (count - len(lines)), *lines]
    head, tail = lines[: count - 1], lines[count - 1 :]
    return "\n\n".join([*head, "\n".join(tail)])
