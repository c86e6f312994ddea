"""Search over texts, by BM25 (Robertson and Zaragoza 2009, 10.1561/1500000019) of bm25s."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ludic_gym.errors import ConfigError
from ludic_gym.tools.tool import Tool, as_tool

MOST_RESULTS = 10
SNIPPET = 200


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
            import bm25s

            self._index = bm25s.BM25()
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
        matches = np.flatnonzero(scores)
        if len(matches) > limit:
            # The sort is of the best alone, with all that are equal to the last of them.
            least = np.partition(scores[matches], -limit)[-limit]
            matches = matches[scores[matches] >= least]
        order = np.argsort(-scores[matches], kind="stable")[:limit]
        return [int(number) for number in matches[order]]


def _words(texts: Sequence[str]) -> list[list[str]]:
    """The words of each text that are searched for."""
    # Imported at the first search: it takes half a second, and few programs search.
    import bm25s

    return list(bm25s.tokenize(list(texts), return_ids=False, show_progress=False))


@dataclass(frozen=True, slots=True)
class Document:
    """A text with a title of its own; a search covers both."""

    title: str
    text: str


def search_tools(documents: Sequence[Document]) -> tuple[Tool, Tool]:
    """The tools `search(query, limit)` and `read(title)` over the documents.

    `search` gives titles and the first `SNIPPET` characters, `read` a whole text. The index is
    built at the first search and shared by all tools over equal documents.
    Raises ConfigError for no documents and for titles that are not all different.

        policy = ToolUse(chat, search_tools(documents))

    >>> documents = [Document("Nile", "A river in Africa."), Document("Oslo", "A city in Norway.")]
    >>> search, read = search_tools(documents)
    >>> search.function("rivers of Africa"), read.function("Oslo")
    ('Nile: A river in Africa.', 'A city in Norway.')
    """
    texts = {document.title: document.text for document in documents}
    if not documents or len(texts) < len(documents):
        raise ConfigError(f"{len(documents)} documents have {len(texts)} different titles")
    corpus = tuple(documents)

    def search(query: str, limit: int = 3) -> str:
        """Find documents by words. Gives titles and beginnings, the best first.

        query: words to look for
        limit: how many documents, 10 at most
        """
        best = _index(corpus).best(query, max(1, min(limit, MOST_RESULTS)))
        lines = [f"{corpus[n].title}: {corpus[n].text[:SNIPPET]}" for n in best]
        return "\n".join(lines) or f"no document matches {query!r}"

    def read(title: str) -> str:
        """Read a document.

        title: its title, as the search gave it
        """
        if title not in texts:
            raise KeyError(f"there is no document {title!r}; search for one")
        return texts[title]

    return as_tool(search), as_tool(read)


@lru_cache(maxsize=8)
def _index(documents: tuple[Document, ...]) -> Index:
    return Index([f"{one.title} {one.text}" for one in documents])
