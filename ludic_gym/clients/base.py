"""ChatClient: the one seam between policies and whatever generates text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ludic_gym.types import Completion, Message, Sampling

# A function's name, description and JSON schema, in the form chat APIs and templates take:
# {"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}.
ToolSchema = Mapping[str, Any]


class ChatClient(Protocol):
    """Completes dialogs, many at a time."""

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message.

        A dialog that ends with an assistant message has that message continued; the completion
        holds only what is new. Raises ClientError if there is no usable answer.
        """
