"""Text of a reply while its tokens are sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ludic_train.agents.replies import overlap

# Stands for bytes that are no whole character yet.
INCOMPLETE = "\ufffd"


class TextStream:
    """Portions of a text, each of which is certain to stand in the whole one.

    decode: text of token ids, without special tokens. stop: strings that end the text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        self._decode, self._stop = decode, stop
        self._ids: list[int] = []
        # Tokens are decoded with some before them, because their text depends on these.
        self._context = self._read = 0
        self._known = self._held = ""
        self._sent = 0
        self._is_stopped = False

    def feed(self, tokens: Iterable[int]) -> str:
        """The text that is certain after these tokens."""
        self._ids += tokens
        text = self._decode(self._ids[self._context :])
        known = len(self._known)
        if self._is_stopped or len(text) <= known or text.endswith(INCOMPLETE):
            return ""
        self._context, self._read = self._read, len(self._ids)
        self._known = self._decode(self._ids[self._context :])
        return self._certain(self._held + text[known:])

    def end(self, text: str) -> str:
        """The rest of the whole text."""
        return text[self._sent :]

    def _certain(self, text: str) -> str:
        ends = [text.index(stop) for stop in self._stop if stop in text]
        if ends:
            self._is_stopped = True
            text = text[: min(ends)]
        kept = 0 if ends else max((overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - kept :]
        text = text[: len(text) - kept]
        self._sent += len(text)
        return text
