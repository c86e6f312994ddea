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
from typing import Any

from ludic_gym.tools.tool import json_number
from ludic_gym.trail import Trail, as_trail
from ludic_gym.types import Message

Convert = Callable[[Sequence[Message]], Sequence[Message]]


class History:
    """Sampled replies of a session by the dialog that they end.

    continued: number of requests that continue a reply. begun: number of those that do not.
    """

    def __init__(self) -> None:
        self._sampled: dict[bytes, Trail[Message]] = {}
        self.continued = 0
        self.begun = 0

    def adopted(
        self, root: bytes, messages: Sequence[Message], convert: Convert
    ) -> tuple[bytes, Trail[Message]]:
        """A key, and the dialog for the chat template.

        The longest part of the dialog that was sampled from is the very messages of then.

        root: key of what else is in the prompt, such as tools; dialogs of other keys never agree.
        convert: from a client's messages to those of the template, for the part that is new.
        """
        keys = dialog_keys(root, messages)
        # From the end, because the last reply has the tokens of all earlier ones in its prompt.
        for index in range(len(messages) - 1, -1, -1):
            dialog = self._sampled.get(keys[index]) if _is_reply(messages[index]) else None
            if dialog is not None:
                self.continued += 1
                return keys[-1], dialog + convert(messages[index + 1 :])
        self.begun += 1
        return (keys[-1] if keys else root), as_trail(convert(messages))

    def add(self, key: bytes, reply: Message, sampled: Trail[Message]) -> None:
        """Remember a reply.

        key: of its dialog, as `adopted` returns it. reply: as the client got it. sampled: the
        dialog of the template, which ends with the reply and its tokens.
        """
        # As the client got it, since that is what its next request will contain.
        (ended,) = dialog_keys(key, [reply])
        self._sampled[ended] = sampled


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
        value: Any = json.loads(text, parse_float=json_number)
        return json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        return text
