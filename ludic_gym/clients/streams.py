"""Streamed responses: server-sent events as the one object of a response that came whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]
# Not `splitlines`, which divides JSON at line separators of Unicode too.
_LINE_END = re.compile(r"\r\n|\n|\r")
_STREAM = re.compile(r"\s*(?:data|event|id|retry)?:")
# Parts of a message that come in pieces of text.
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
# Fields of Anthropic's blocks that come in pieces, by the field of their pieces.
_PIECES = {
    "text": "text",
    "thinking": "thinking",
    "signature": "signature",
    "partial_json": "input",
}
_LOST = {"error": {"code": 502, "message": "the stream ended before the reply did"}}


def whole_text(text: str) -> str:
    r"""The text of a response, as the server would have sent it without a stream.

    A stream that is no stream of JSON stays as it is; so does a response that came whole.

    >>> whole_text('{"choices": []}')
    '{"choices": []}'
    >>> chunk = '{"choices": [{"delta": {"content": "4"}}]}'
    >>> json.loads(whole_text(f"data: {chunk}\n\ndata: [DONE]\n\n"))["choices"][0]["message"]
    {'role': 'assistant', 'content': '4'}
    """
    if _STREAM.match(text) is None:
        return text
    try:
        return json.dumps(_joined_stream(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return text


def _joined_stream(text: str) -> Json:
    """The response of a stream in the format of chat completions, or of Anthropic's messages.

    An error in the stream is that of the response, with code 502 for a stream that was cut.
    Raises ValueError, TypeError, KeyError or AttributeError for data of another format.
    """
    lines = [line[5:].strip() for line in _LINE_END.split(text) if line.startswith("data:")]
    events: list[Json] = [json.loads(line) for line in lines if line and line != "[DONE]"]
    for event in events:
        if event.get("error"):
            return event
    if any(event.get("type") == "message_start" for event in events):
        return _joined_blocks(events)
    return _joined_chunks(events, is_done="[DONE]" in lines)


def _joined_chunks(chunks: Iterable[Json], *, is_done: bool) -> Json:
    """The chat completion of its chunks."""
    response: Json = {}
    choice: Json = {"finish_reason": None}
    message: Json = {"role": "assistant", "content": None}
    calls: list[Json] = []
    for chunk in chunks:
        # The usage comes last, in a chunk without a choice, and is null in those before it.
        response |= {name: value for name, value in chunk.items() if value is not None}
        for part in (p for p in chunk.get("choices") or () if not p.get("index")):
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
            delta = part.get("delta") or part.get("message") or {}
            for name in _TEXTS:
                message[name] = _added(message.get(name), delta.get(name))
            for call in delta.get("tool_calls") or ():
                _add_call(calls, call)
    if not is_done and not choice["finish_reason"]:
        return _LOST
    message = {n: value for n, value in message.items() if value is not None or n == "content"}
    if calls:
        message["tool_calls"] = [{"id": c["id"], "function": c["function"]} for c in calls]
    return {**response, "choices": [{**choice, "message": message}]}


def _added(begun: Any, piece: Any) -> Any:  # noqa: ANN401 - JSON
    """Text with a piece added; lists of parts for a server that sends thoughts in the content."""
    if piece is None or begun is None:
        return begun if piece is None else piece
    if isinstance(begun, str) and isinstance(piece, str):
        return begun + piece
    parts = list[Json]()
    for part in (*_parts(begun), *_parts(piece)):
        kind = str(part.get("type"))
        if (
            parts
            and parts[-1].get("type") == kind
            and type(parts[-1].get(kind)) is type(part[kind])
        ):
            parts[-1] = {**parts[-1], kind: parts[-1][kind] + part[kind]}
        else:
            parts.append(part)
    return parts


def _parts(content: Any) -> list[Json]:  # noqa: ANN401 - JSON
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _add_call(calls: list[Json], piece: Mapping[str, Any]) -> None:
    """Add a piece of a tool call to the call that it belongs to, or begin another."""
    function = piece.get("function") or {}
    index, id, name = piece.get("index"), piece.get("id") or "", function.get("name") or ""
    call = next((call for call in reversed(calls) if call["index"] == index), None)
    # Some servers number no calls, or all of them 0, and send each one whole.
    if (
        call is None
        or (id and call["id"] and id != call["id"])
        or (index is None and name and call["function"]["name"])
    ):
        call = {"index": index, "id": "", "function": {"name": "", "arguments": None}}
        calls.append(call)
    call["id"] = call["id"] or id
    # The name comes once, or with every piece.
    if name != call["function"]["name"]:
        call["function"]["name"] += name
    arguments = function.get("arguments")
    if arguments is not None:
        begun = call["function"]["arguments"]
        is_text = isinstance(begun, str) and isinstance(arguments, str)
        call["function"]["arguments"] = begun + arguments if is_text else arguments


def _joined_blocks(events: Iterable[Json]) -> Json:
    """Anthropic's message of its events."""
    message: Json = {}
    blocks: dict[int, Json] = {}
    is_ended = False
    for event in events:
        match event:
            case {"type": "message_start", "message": dict(begun)}:
                message = {**begun}
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                # The input of a call comes as text, after an empty object.
                blocks[index] = {**block, "input": ""} if "input" in block else {**block}
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                for piece, name in _PIECES.items():
                    if isinstance(delta.get(piece), str):
                        blocks[index][name] = (blocks[index].get(name) or "") + delta[piece]
            case {"type": "message_delta", **fields}:
                usage = {**(message.get("usage") or {}), **(fields.get("usage") or {})}
                message |= {**(fields.get("delta") or {}), "usage": usage}
                is_ended = True
            case _:
                pass
    if not is_ended:
        return _LOST
    return {**message, "content": [_with_input(blocks[index]) for index in sorted(blocks)]}


def _with_input(block: Json) -> Json:
    """The block with the input of a call as an object; a text that is none stays as it is."""
    if "input" not in block:
        return block
    try:
        return {**block, "input": json.loads(block["input"] or "{}")}
    except (ValueError, RecursionError):
        return block
