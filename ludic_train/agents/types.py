"""One request and one response of any dialect: frozen, without logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ludic_gym.dialogs import message_calls
from ludic_gym.types import Completion, Message, Sampling, ToolCall, ToolSchema

Json = dict[str, Any]
Event = tuple[str, Json | str]
"""Name and data of a server-sent event; without a name, the data alone is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of any dialect.

    model: the name that the client uses, which the response repeats.
    messages: the dialog, in the format of chat templates.
    tool_choice: "auto", "none", "required", or the name of the one function to call.
    parallel: False keeps only the first tool call of a reply.
    sampling: all parameters but max_tokens, which is None where the client leaves it out.
    stream: respond by events. logprobs: return those of sampled tokens.
    token_ids: return the token ids of prompt and reply. usage: a stream ends with the usage.
    previous: id of the response that the messages continue; "" for none, None in dialects whose
        responses have no such id.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    tool_choice: str = "auto"
    parallel: bool = True
    sampling: Sampling
    max_tokens: int | None = None
    stream: bool = False
    logprobs: bool = False
    token_ids: bool = False
    usage: bool = False
    previous: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The reply to a request, as the client gets it.

    id: unique in the gateway. created: Unix time in seconds.
    content, reasoning, calls: parts of the text. stop: the string of the request that ended it.
    completion: the model call behind it, with the very ids that were sampled.
    """

    id: str
    created: int
    request: Request
    content: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: str = ""
    completion: Completion

    @property
    def finish_reason(self) -> str:
        """Reason for the end, as of `Completion`."""
        ended = self.completion.finish_reason
        return "tool_calls" if self.calls and ended == "stop" else ended

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of the prompt; 0 for a client that does not return them."""
        return len(self.completion.prompt_ids or ())

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens of the reply; 0 for a client that does not return them."""
        return len(self.completion.completion_ids or ())

    @property
    def message(self) -> Message:
        """The assistant's message of chat completions, without its reasoning."""
        if not self.calls:
            return {"role": "assistant", "content": self.content}
        calls = message_calls(self.calls)
        return {"role": "assistant", "content": self.content or None, "tool_calls": calls}
