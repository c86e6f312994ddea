"""Search over a set of documents, by BM25 (Robertson and Zaragoza 2009, 10.1561/1500000019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ludic_gym.errors import ConfigError
from ludic_gym.tools.bm25 import Index
from ludic_gym.tools.tool import Tool, as_tool

MOST_RESULTS = 10
SNIPPET = 200


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
    kept = tuple(documents)

    def search(query: str, limit: int = 3) -> str:
        """Find documents by words. Gives titles and beginnings, the best first.

        query: words to look for
        limit: how many documents, 10 at most
        """
        found = best(kept, query, max(1, min(limit, MOST_RESULTS)))
        lines = [f"{one.title}: {one.text[:SNIPPET]}" for one in found]
        return "\n".join(lines) or f"no document matches {query!r}"

    def read(title: str) -> str:
        """Read a document.

        title: its title, as the search gave it
        """
        if title not in texts:
            raise KeyError(f"there is no document {title!r}; search for one")
        return texts[title]

    return as_tool(search), as_tool(read)


def best(documents: tuple[Document, ...], query: str, limit: int) -> list[Document]:
    """The documents that match the query best, the best first, at most `limit` of them.

    Case and common English words are ignored. A document without any term of the query is left
    out; equal scores keep the documents' order.
    """
    return [documents[number] for number in _index(documents).best(query, limit)]


@lru_cache(maxsize=8)
def _index(documents: tuple[Document, ...]) -> Index:
    return Index([f"{one.title} {one.text}" for one in documents])
