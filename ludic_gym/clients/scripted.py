"""ScriptedClient: scripted replies with exact tokens, for tests and examples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from ludic_gym.errors import ConfigError, ScriptExhausted
from ludic_gym.sampling import fit_max_tokens
from ludic_gym.types import Completion, FinishReason, Message, Sampling, ToolCall, ToolSchema

Reply = str | Message
Script = Callable[[Sequence[Message], Sampling], Reply]

# Text is its UTF-8 bytes, one token each; roles and the end of a turn have tokens of their own.
END_OF_TURN = 256
ROLE_TOKENS = {"system": 257, "user": 258, "assistant": 259, "tool": 260}


class ScriptedClient:
    """Client that returns the replies in order, or the result of a function of the dialog.

    Tokens are bytes: a turn is its role's token, the bytes of its text and the end-of-turn token.
    Every prompt therefore extends the previous prompt and completion exactly. The log-prob of token
    i is `-(i % 16 + 1) / 16`. `max_tokens`, `max_length` and `stop` work as in a model. A
    reply that is a message may have tool calls.

    replies: texts or messages in order; or a function of the dialog and the sampling parameters,
        which may be called any number of times.
    policy_version: version of the completions; a test may change it at any time.
    requests: the dialogs of all calls, in order.
    Raises ConfigError for a single text, whose characters would be the replies.

    >>> import asyncio
    >>> client = ScriptedClient(["yes", "no"])
    >>> question = [{"role": "user", "content": "Is it?"}]
    >>> asyncio.run(client.complete(question, Sampling())).text
    'yes'
    """

    def __init__(self, replies: Iterable[Reply] | Script, *, policy_version: int = 0) -> None:
        if isinstance(replies, str):
            raise ConfigError(f"replies is a list of texts or a function, got the text {replies!r}")
        self._script = replies if callable(replies) else partial(self._next, iter(replies))
        self.policy_version = policy_version
        self.requests: list[tuple[Message, ...]] = []

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next reply, with its prompt, tokens and log-probs; the tools have no effect.

        Raises ScriptExhausted when the list is used up, PromptTooLong by `max_length`.
        """
        self.requests.append(tuple(messages))
        reply = self._script(messages, sampling)
        message: Message = (
            {"role": "assistant", "content": reply} if isinstance(reply, str) else reply
        )
        prompt_ids = prompt_tokens(messages)
        text, ids, finish_reason = _generated(message, fit_max_tokens(sampling, len(prompt_ids)))
        return Completion(
            text=text,
            finish_reason=finish_reason,
            sampling=sampling,
            prompt_ids=prompt_ids,
            completion_ids=ids,
            # Multiples of 1/16 are exact in binary: sums of them can be compared for equality.
            logprobs=tuple(-(token % 16 + 1) / 16 for token in ids),
            policy_version=self.policy_version,
            tool_calls=tuple(
                ToolCall(id=call["id"], **call["function"])
                for call in message.get("tool_calls", ())
                if finish_reason == "tool_calls"
            ),
        )

    def _next(self, replies: Iterator[Reply], messages: object, sampling: object) -> Reply:
        for reply in replies:
            return reply
        used = len(self.requests) - 1
        raise ScriptExhausted(f"all {used} replies are used up; give the ScriptedClient more")


def prompt_tokens(messages: Sequence[Message]) -> tuple[int, ...]:
    """The dialog's tokens, up to the start or the continuation of the assistant's reply.

    >>> prompt_tokens([{"role": "user", "content": "hi"}])
    (258, 104, 105, 256, 259)
    """
    ids: list[int] = []
    for message in messages:
        ids += [ROLE_TOKENS[message["role"]], *_body(message), END_OF_TURN]
    if messages and messages[-1]["role"] == "assistant":
        # Without the end of the turn, so that the completion continues the message.
        return tuple(ids[:-1])
    return (*ids, ROLE_TOKENS["assistant"])


def _generated(message: Message, sampling: Sampling) -> tuple[str, tuple[int, ...], FinishReason]:
    """Text, token ids and finish reason of a reply, cut by `stop` and then by `max_tokens`."""
    text = message["content"] or ""
    # A server samples up to the end of the first stop string, and cuts the string from the text.
    stops = [text.find(stop) + len(stop) for stop in sampling.stop if stop in text]
    if stops:
        ids = tuple(_encode(text[: min(stops)]))
        # The shortest: the stop string that comes first ends the text.
        text = min((text.split(stop, 1)[0] for stop in sampling.stop if stop in text), key=len)
    else:
        ids = (*_body(message), END_OF_TURN)
    # A limit may cut inside a character, whose first bytes then have no text.
    if len(ids) > sampling.max_tokens:
        ids = ids[: sampling.max_tokens]
        return bytes(i for i in ids if i < 256).decode(errors="ignore"), ids, "length"
    return text, ids, "tool_calls" if message.get("tool_calls") and not stops else "stop"


def _body(message: Message) -> bytes:
    """The bytes of a message, its tool calls after its text, as a chat template writes them."""
    calls = message.get("tool_calls")
    return _encode((message["content"] or "") + (json.dumps(calls) if calls else ""))


def _encode(text: str) -> bytes:
    # JSON may hold lone surrogates, which UTF-8 cannot encode strictly.
    return text.encode(errors="surrogatepass")
