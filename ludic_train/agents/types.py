"""Data between dialects, sessions and the server: frozen, without logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ludic_gym.types import Completion, Message, ToolCall, ToolSchema

Json = dict[str, Any]
Event = tuple[str, Json | str]
"""Name and data of a server-sent event; without a name, the data alone is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of any dialect. Sampling parameters are None where the client leaves them out.

    model: the name that the client uses, which the response repeats.
    messages: the dialog, in the format of chat templates.
    prompt: text or token ids of /v1/completions, in place of messages.
    tool_choice: "auto", "none", "required", or the name of the one function to call.
    parallel: False keeps only the first tool call of a reply.
    schema: JSON schema that the reply fits; None for any text.
    n: number of choices. stream: answer in events. logprobs: return those of sampled tokens.
    token_ids: return the token ids of prompt and reply. usage: a stream ends with the usage.
    previous: id of the response that the messages continue; "" for none, None in dialects whose
        responses have no such id.
    """

    model: str
    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    tools: tuple[ToolSchema, ...] = ()
    tool_choice: str = "auto"
    parallel: bool = True
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    schema: Json | None = None
    n: int = 1
    stream: bool = False
    logprobs: bool = False
    token_ids: bool = False
    usage: bool = False
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a reply, in the order of the text: text, reasoning, or a whole tool call."""

    kind: Literal["text", "reasoning", "call"]
    text: str = ""
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One choice of an answer, as the client gets it.

    completion: the model call behind it, with the very ids that were sampled.
    stop: string of the request that ended it; "" for none.
    """

    content: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    completion: Completion
    stop: str = ""

    @property
    def finish_reason(self) -> str:
        """Reason for the end: "stop", "length" or "tool_calls"."""
        return "tool_calls" if self.calls else self.completion.finish_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All choices of a response.

    id: unique in the gateway. created: Unix time in seconds.
    """

    id: str
    created: int
    request: Request
    replies: tuple[Reply, ...]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, which all choices share."""
        return len(self.replies[0].completion.prompt_ids or ())

    @property
    def sampled_tokens(self) -> int:
        """Tokens of all choices."""
        return sum(len(reply.completion.completion_ids or ()) for reply in self.replies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A model call of a session, in the order in which it ended.

    node: unique in the gateway. request: as the client sent it.
    """

    node: str
    request: Request
    reply: Reply
