"""Search over a set of documents, by BM25 (Robertson and Zaragoza 2009, 10.1561/1500000019)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from ludic_gym.errors import ConfigError
from ludic_gym.extras import optional
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
    built here and shared by all tools over equal documents.
    Raises ConfigError for no documents and for titles that are not all different, MissingPackage
    without the extra `tools`.

        documents = [Document("Nile", "A river in Africa ..."), Document("Oslo", "A city ...")]
        policy = ToolUse(chat, search_tools(documents))
    """
    texts = {document.title: document.text for document in documents}
    if not documents or len(texts) < len(documents):
        raise ConfigError(f"{len(documents)} documents have {len(texts)} different titles")
    kept = tuple(documents)
    # Not at the first search, so that a missing package is an error here, not text for a model.
    _scorer(kept)

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
    scores = _scorer(documents)(query)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return [documents[i] for i in order[:limit] if scores[i] > 0]


@lru_cache(maxsize=8)
def _scorer(documents: tuple[Document, ...]) -> Callable[[str], Sequence[float]]:
    """A function from a query to a score per document; to nothing for a query without words."""
    bm25s = optional("bm25s", "ludic-gym[tools]")
    words = partial(bm25s.tokenize, return_ids=False, show_progress=False)
    index = bm25s.BM25()
    index.index(words([f"{one.title} {one.text}" for one in documents]), show_progress=False)

    def scores(query: str) -> Sequence[float]:
        (query_words,) = words([query])
        found: Sequence[float] = index.get_scores(query_words) if query_words else ()
        return found

    return scores
