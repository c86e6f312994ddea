"""Overlap of a train and a test split: equal texts, and words in a row that they share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

SIZE = 13
# An n-gram in more texts than that, and than one in a hundred, belongs to a template.
COMMON = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Number of texts of a test split that a train split has too, or shares words in a row with.

    train, test: number of texts, equal ones counted once.
    exact: test texts that are in train, but for case, punctuation and white space.
    shared: test texts with an n-gram of a train text, exact ones included.
    example: an n-gram that is shared, or an equal text; "" if there is none.
    """

    train: int
    test: int
    exact: int
    shared: int
    example: str


def overlap(train: Sequence[str], test: Sequence[str], size: int = SIZE) -> Overlap:
    """Exact and n-gram overlap of two splits (Brown et al. 2020, arXiv:2005.14165, appendix C).

    Words are compared without case and punctuation. An n-gram that more than 10 texts and more
    than 1 % of the texts of both splits contain, whatever numbers they have in it, is part of a
    template that tasks are made from, and does not count: all tasks of a kind share it. A text of
    fewer than `size` words is compared as a whole.

    >>> overlap(["a b c d", "x y z"], ["B, C, D!", "q"], size=3).shared
    1
    """
    known, asked = (list({_words(text) for text in texts}) for texts in (train, test))
    # By texts and not by occurrences: a text that repeats its own words is no template.
    counts = Counter(
        pattern
        for words in {*known, *asked}
        for pattern in {_pattern(gram) for gram in _ngrams(words, size)}
    )
    most = max(COMMON, (len(known) + len(asked)) // 100)
    in_train = {
        gram for words in known for gram in _ngrams(words, size) if counts[_pattern(gram)] <= most
    }
    equal, example, shared = set(known), "", 0
    for words in asked:
        found = [words] if words in equal else list(_ngrams(words, size) & in_train)
        shared += bool(found)
        example = example or (" ".join(min(found)) if found else "")
    exact = sum(words in equal for words in asked)
    return Overlap(train=len(known), test=len(asked), exact=exact, shared=shared, example=example)


def _words(text: str) -> tuple[str, ...]:
    # Without words, such as a board of signs, the text itself is compared.
    return tuple(re.findall(r"\w+", text.lower())) or (text.strip(),)


def _pattern(gram: tuple[str, ...]) -> tuple[str, ...]:
    """The n-gram without the values of its numbers, which a template takes from each task."""
    return tuple("0" if word.isdecimal() else word for word in gram)


def _ngrams(words: tuple[str, ...], size: int) -> set[tuple[str, ...]]:
    return {words[i : i + size] for i in range(max(1, len(words) - size + 1))}
