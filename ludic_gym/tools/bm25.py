"""BM25 (Robertson and Zaragoza 2009, 10.1561/1500000019) over texts, in NumPy."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ludic_gym.errors import ConfigError

_WORD = re.compile(r"\w+")
# Words that are in this share of the texts or more are not searched for, unless the texts are few.
FREQUENT, FEW = 0.25, 8


class Index:
    """An inverted index of texts.

    Args:
        texts: at least one.
        k1: saturation of the number of times a word occurs.
        b: weight of the length of a text, 0 to 1.

    >>> Index(["a red fox", "a blue fox in a box", "an owl", "a cat"]).best("blue foxes, fox", 2)
    [1, 0]
    """

    def __init__(self, texts: Sequence[str], k1: float = 1.2, b: float = 0.75) -> None:
        if not texts:
            raise ConfigError("there are no texts to search")
        self._size = len(texts)
        self._terms: dict[str, int] = {}
        words = [words_of(text) for text in texts]
        lengths = np.array([len(some) for some in words])
        new = self._terms
        ids = np.array([new.setdefault(word, len(new)) for some in words for word in some])
        owners = np.repeat(np.arange(self._size), lengths)
        pairs, counts = np.unique(ids * self._size + owners, return_counts=True)
        terms, self._texts = np.divmod(pairs, self._size)
        # The postings of term i are those from ends[i] up to ends[i + 1].
        self._ends = np.searchsorted(terms, np.arange(len(new) + 1))
        holders = np.diff(self._ends)
        idf = np.log1p((self._size - holders + 0.5) / (holders + 0.5))
        norms = k1 * (1 - b + b * lengths / max(lengths.mean(), 1.0))
        self._weights = idf[terms] * counts * (k1 + 1) / (counts + norms[self._texts])

    def best(self, query: str, limit: int) -> list[int]:
        """Numbers of the texts that match the query best, at most `limit`, the best first.

        Texts with no word of the query are left out; equal scores keep the order of the texts.
        """
        scores = np.zeros(self._size)
        for word in dict.fromkeys(words_of(query)):
            term = self._terms.get(word)
            if term is None:
                continue
            start, end = self._ends[term], self._ends[term + 1]
            if end - start < FREQUENT * self._size or self._size < FEW:
                scores[self._texts[start:end]] += self._weights[start:end]
        found = np.flatnonzero(scores)
        if len(found) > limit:
            least = np.partition(scores[found], -limit)[-limit]
            found = found[scores[found] >= least]
        order = np.argsort(-scores[found], kind="stable")[:limit]
        return [int(number) for number in found[order]]


def words_of(text: str) -> list[str]:
    """The words of a text in lower case."""
    return _WORD.findall(text.lower())
