"""BM25 (Robertson and Zaragoza 2009, 10.1561/1500000019) over texts, by the package bm25s."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from ludic_gym.errors import ConfigError


class Index:
    """An index of texts, in Lucene's variant of the formula, with k1 = 1.5 and b = 0.75.

    Case, common English words and words of one letter are ignored.

    >>> Index(["a red fox", "a blue fox in a box", "an owl", "a cat"]).best("blue foxes, fox", 2)
    [1, 0]

    Raises ConfigError without texts.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        if not texts:
            raise ConfigError("there are no texts to search")
        words = _words(texts)
        self._index: Any = None
        # The package cannot index texts without any word.
        if any(words):
            self._index = _package().BM25()
            self._index.index(words, show_progress=False)

    def best(self, query: str, limit: int) -> list[int]:
        """Numbers of the texts that match the query best, at most `limit`, the best first.

        Texts with no word of the query are left out; equal scores keep the order of the texts.
        """
        (words,) = _words([query])
        if self._index is None or not words:
            return []
        scores = self._index.get_scores(words)
        # Scores above 0 are those of texts with a word of the query.
        found = np.flatnonzero(scores)
        if len(found) > limit:
            # The sort is of the best alone, with all that are equal to the last of them.
            least = np.partition(scores[found], -limit)[-limit]
            found = found[scores[found] >= least]
        order = np.argsort(-scores[found], kind="stable")[:limit]
        return [int(number) for number in found[order]]


def _package() -> ModuleType:
    # Imported at the first search: it takes half a second, and few programs search.
    return import_module("bm25s")


def _words(texts: Sequence[str]) -> list[list[str]]:
    """The words of each text that are searched for."""
    words = _package().tokenize(list(texts), return_ids=False, show_progress=False)
    return list(words)
