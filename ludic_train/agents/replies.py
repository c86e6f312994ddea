"""Parts of a model's text: reasoning, tool calls, and the rest, whole or while it is sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ludic_gym.types import Completion, ToolCall, ToolSchema
from ludic_train.agents.types import Piece, Reply
from ludic_train.models.tool_calls import (
    CALL,
    CALL_END,
    PYTHON,
    THINK_END,
    json_call,
    split_calls,
    tagged_call,
)

THINK = "<think>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFormat:
    """The format of a reply in a model's text.

    calls: "tagged" for <tool_call> tags around JSON or around <function=...>, "bare" for a reply of
        JSON objects alone, "none" where no tools were offered.
    thinks: a thought in <think> tags may begin the reply. in_thought: the prompt has opened it.
    """

    calls: Literal["tagged", "bare", "none"] = "tagged"
    thinks: bool = False
    in_thought: bool = False


class ReplyReader:
    """Pieces of a reply from its text, in any portions.

    White space next to a tool call belongs to no piece. A call that cannot be read stays text, as
    the model wrote it.
    tools: offered to the model; their schemas give the types of <parameter=...>.
    name: begins the ids of tool calls. parallel: False drops all calls after the first.
    """

    def __init__(
        self,
        form: ReplyFormat,
        tools: Sequence[ToolSchema] = (),
        name: str = "",
        *,
        parallel: bool = True,
    ) -> None:
        self._form, self._tools, self._name = form, tools, name
        self._parallel = parallel
        self._rest = ""
        self._space = ""
        self._state: Literal["start", "reasoning", "text", "call", "bare"] = "start"
        self._after_call = False
        self._count = 0
        if form.in_thought:
            self._state = "reasoning"

    def feed(self, text: str) -> list[Piece]:
        """Pieces that are certain after this portion."""
        self._rest += text
        return _joined(self._read(is_end=False))

    def end(self) -> list[Piece]:
        """The last pieces."""
        return _joined(self._read(is_end=True))

    def _read(self, *, is_end: bool) -> Iterator[Piece]:
        """Pieces of the text so far, by a state machine that runs until it needs more text."""
        while True:
            state, rest = self._state, self._rest
            match state:
                case "start":
                    self._started(is_end=is_end)
                case "reasoning":
                    yield from self._reasoning(is_end=is_end)
                case "text":
                    yield from self._text(is_end=is_end)
                case "call":
                    yield from self._call(is_end=is_end)
                case "bare":
                    yield from self._bare(is_end=is_end)
            if (self._state, self._rest) == (state, rest):
                break
        if is_end and self._space and not self._after_call:
            yield Piece("text", self._space)
            self._space = ""

    def _started(self, *, is_end: bool) -> None:
        begun = self._rest.lstrip()
        if self._form.thinks and begun.startswith(THINK):
            self._state, self._rest = "reasoning", begun[len(THINK) :]
        elif self._form.calls == "bare" and begun.startswith(("{", PYTHON)):
            self._state = "bare"
        elif is_end or (begun and not (self._form.thinks and THINK.startswith(begun))):
            # Before that, a thought or a bare call may still come after white space.
            self._state = "text"

    def _reasoning(self, *, is_end: bool) -> Iterator[Piece]:
        thought, tag, rest = self._rest.partition(THINK_END)
        if tag:
            # The blank line after a thought belongs to the tag; so it does in chat templates.
            self._state, self._rest, self._after_call = "text", rest, True
        else:
            # The end of this portion may be the first half of a tag, and waits for the next one.
            kept = 0 if is_end else overlap(thought, THINK_END)
            thought, self._rest = _split(thought, kept)
        if thought:
            yield Piece("reasoning", thought)

    def _text(self, *, is_end: bool) -> Iterator[Piece]:
        if self._form.calls != "tagged":
            text, tag, rest = self._rest, "", ""
        else:
            text, tag, rest = self._rest.partition(CALL)
        kept = 0 if tag or is_end or self._form.calls != "tagged" else overlap(text, CALL)
        text, held = _split(text, kept)
        if self._after_call:
            text = text.lstrip()
            self._after_call = not text
        # White space waits: it is dropped if a call follows, and sent if text does.
        bare = text.rstrip()
        if bare:
            yield Piece("text", self._space + bare)
            self._space = ""
        self._space += text[len(bare) :]
        self._rest = held
        if tag:
            self._state, self._rest = "call", rest

    def _call(self, *, is_end: bool) -> Iterator[Piece]:
        body, tag, rest = self._rest.partition(CALL_END)
        # Sent whole; at the end of the reply its tag may lack, as that of a last token.
        if not tag and not is_end:
            return
        self._state, self._rest = "text", rest
        call = self._parsed(body)
        space, self._space = self._space, ""
        if call is None:
            yield Piece("text", space + CALL + body + tag)
            return
        self._after_call = True
        if self._parallel or self._count == 1:
            yield Piece("call", call=call)

    def _bare(self, *, is_end: bool) -> Iterator[Piece]:
        if not is_end:
            return
        # Only the end shows that the reply has nothing but calls.
        text, found = split_calls(self._rest, "bare")
        kept = found if self._parallel else found[:1]
        yield from (Piece("call", call=self._numbered(*call)) for call in kept)
        if text:
            yield Piece("text", text)
        self._state, self._rest = "text", ""

    def _parsed(self, body: str) -> ToolCall | None:
        """The call between two tags, as JSON or in XML; None if it is neither."""
        found = json_call(body) or tagged_call(body, self._tools)
        return None if found is None else self._numbered(*found)

    def _numbered(self, name: str, arguments: str) -> ToolCall:
        self._count += 1
        return ToolCall(id=f"call_{self._name}{self._count}", name=name, arguments=arguments)


def read_reply(reader: ReplyReader, text: str, completion: Completion) -> Reply:
    """The reply of a whole text."""
    return reply_of([*reader.feed(text), *reader.end()], completion)


def reply_of(pieces: Iterable[Piece], completion: Completion) -> Reply:
    """The reply that consists of these pieces."""
    pieces = list(pieces)
    return Reply(
        content="".join(piece.text for piece in pieces if piece.kind == "text"),
        reasoning="".join(piece.text for piece in pieces if piece.kind == "reasoning").strip(),
        calls=tuple(piece.call for piece in pieces if piece.call is not None),
        completion=completion,
    )


def overlap(text: str, tag: str) -> int:
    """Number of last characters of the text with which the tag may begin.

    >>> overlap("Let me see <tool", "<tool_call>"), overlap("a < b", "<tool_call>")
    (5, 0)
    """
    longest = min(len(text), len(tag) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(tag[:size])), 0)


def _split(text: str, kept: int) -> tuple[str, str]:
    """The text without its last characters, and these."""
    return text[: len(text) - kept], text[len(text) - kept :]


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces, those of one kind that follow each other as one."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and piece.call is None and joined[-1].kind == piece.kind:
            piece = Piece(piece.kind, joined.pop().text + piece.text)
        joined.append(piece)
    return joined
