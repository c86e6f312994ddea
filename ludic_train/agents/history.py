"""Dialogs of a session: which sampled replies a client's messages continue. No I/O.

A client sends its whole history with every request, as its framework has stored it: with other
white space, with JSON that was parsed and written again, with fields left out. Messages that agree
in content with a prompt and its reply are replaced by the very messages of that time, so that the
next prompt continues the sampled token ids. Any other history begins a row of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import takewhile
from operator import eq
from typing import Any

from ludic_gym.types import Message

Convert = Callable[[Sequence[Message]], Sequence[Message]]
# Integers above it have no exact float, so that 1e300 stays what it is.
EXACT_FLOATS = 2**53
# Prompts whose text is kept: as long as a dialog, it is needed for the turn after.
KEPT_TEXTS = 8


class History:
    """Sampled replies of a session by the dialog that they end.

    continued: number of requests that continue a reply. begun: number of those that do not.
    """

    def __init__(self) -> None:
        self._ended: dict[bytes, tuple[Message, ...]] = {}
        self._prompts: dict[bytes, str] = {}
        self._texts: dict[str, tuple[int, ...]] = {}
        self._last: tuple[bytes, Sequence[Message], list[bytes]] = (b"", (), [])
        self.continued = 0
        self.begun = 0

    def adopted(
        self, root: bytes, messages: Sequence[Message], convert: Convert
    ) -> tuple[bytes, tuple[Message, ...], str]:
        """A key, the dialog for the chat template, and the prompt of the reply that it continues.

        The longest part of the dialog that was sampled from is the very messages of then. The
        prompt is the text of the template; "" for no such reply, or for one of long ago.

        root: key of what else is in the prompt, such as tools; dialogs of other keys never agree.
        convert: from a client's messages to those of the template, for the part that is new.
        """
        keys = self._keys(root, messages)
        # From the end, because the last reply has the tokens of all earlier ones in its prompt.
        for index in range(len(messages) - 1, -1, -1):
            key = keys[index]
            known = self._ended.get(key) if _is_reply(messages[index]) else None
            if known is not None:
                self.continued += 1
                dialog = (*known, *convert(messages[index + 1 :]))
                return keys[-1], dialog, self._prompts.get(key, "")
        self.begun += 1
        return (keys[-1] if keys else root), tuple(convert(messages)), ""

    def add(self, key: bytes, reply: Message, sampled: Sequence[Message], prompt: str = "") -> None:
        """Remember a reply.

        key: of its dialog, as `adopted` returns it. reply: as the client got it. sampled: the
        dialog of the template, which ends with the reply and its tokens. prompt: its text.
        """
        # As the client got it, since that is what its next request will contain.
        (ended,) = dialog_keys(key, [reply])
        self._ended[ended] = tuple(sampled)
        self._prompts[ended] = prompt
        if len(self._prompts) > KEPT_TEXTS:
            # The oldest; without its text, a dialog is rendered and encoded from its beginning.
            del self._prompts[next(iter(self._prompts))]

    def _keys(self, root: bytes, messages: Sequence[Message]) -> list[bytes]:
        """`dialog_keys`; those of messages that the last request had too are known."""
        last_root, last, keys = self._last
        same = sum(takewhile(bool, map(eq, last, messages))) if last_root == root else 0
        keys = keys[:same]
        keys += dialog_keys(keys[-1] if keys else root, messages[same:])
        self._last = root, messages, keys
        return keys

    def text_ids(self, prompt: str) -> tuple[int, tuple[int, ...]]:
        """Length of the longest text that `prompt` continues, and its token ids; 0 and none."""
        known = [text for text in self._texts if prompt.startswith(text)]
        longest = max(known, key=len, default="")
        self.continued += bool(longest)
        self.begun += not longest
        return len(longest), self._texts.get(longest, ())

    def add_text(self, text: str, ids: tuple[int, ...]) -> None:
        """Remember a text without roles, and its token ids."""
        self._texts[text] = ids


def dialog_keys(root: bytes, messages: Sequence[Message]) -> list[bytes]:
    """A key for each beginning of the dialog; equal for beginnings that agree in content."""
    keys, last = [], root
    for message in messages:
        last = blake2b(last + agreed(message), digest_size=16).digest()
        keys.append(last)
    return keys


def agreed(message: Message) -> bytes:
    """The content of a message, in which two messages agree or not.

    White space counts inside the messages of others, and not in replies. Tool calls are compared by
    name and by the value of their arguments; their ids, and any reasoning, are not compared.

    >>> spaced: Message = {"role": "assistant", "content": " 4  or 5 "}
    >>> agreed(spaced) == agreed({"role": "assistant", "content": "4 or 5"})
    True
    """
    text = message.get("content") or ""
    if not _is_reply(message):
        return f"{message['role']}\n{text.strip()}".encode(errors="surrogatepass")
    calls = [
        [call["function"]["name"], _arguments(call["function"]["arguments"])]
        for call in message.get("tool_calls") or ()
    ]
    # Text without line breaks, so that none can be taken for a call.
    written = f"assistant\n{' '.join(text.split())}\n{json.dumps(calls) if calls else ''}"
    return written.encode(errors="surrogatepass")


def _is_reply(message: Message) -> bool:
    return message["role"] == "assistant"


def _arguments(text: str) -> str:
    """Arguments as JSON of one spelling; text that is no JSON as it is."""
    try:
        # Written again by one rule: frameworks change spaces, the order of keys, and 1.0 to 1.
        value: Any = json.loads(text, parse_float=_number)
        return json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float:
    """The number, as an integer where JavaScript would write it as one."""
    value = float(text)
    return int(value) if abs(value) < EXACT_FLOATS and value.is_integer() else value
