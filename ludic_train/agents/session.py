"""A session: the model calls of one run of an agent program, one episode.

Tokens are owned here: a prompt continues the ids that were sampled for the replies in it, and what
a client gets is text made from these ids. No text of a reply is ever tokenised again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from operator import is_
from typing import Any, Protocol, cast, runtime_checkable

from ludic_gym.concurrency import gather_all
from ludic_gym.errors import ConfigError
from ludic_gym.prompts import sampled_message
from ludic_gym.sampling import call_sampling, derived_seed, fit_max_tokens
from ludic_gym.tools.mcp_server import ToolServer
from ludic_gym.types import Completion, Message, Sampling, ToolSchema
from ludic_train.agents.history import History
from ludic_train.agents.prompts import Prompts, message_calls
from ludic_train.agents.replies import ReplyFormat, ReplyReader, read_reply
from ludic_train.agents.types import Answer, Call, Reply, Request
from ludic_train.errors import SessionOver

# Answers that a client may request once more, as it does after a time limit of its own.
KEPT_ANSWERS = 8
TEXT_ONLY = ReplyFormat(calls="none")


class Engine(Protocol):
    """Continues token ids: the local engine, or `VLLMTokenClient` for servers."""

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """The continuation, with the ids and log-probs of its tokens."""


@runtime_checkable
class StreamingEngine(Protocol):
    """An engine that gives each token as soon as it is sampled."""

    async def streamed(
        self, prompt_ids: Sequence[int], sampling: Sampling, on_token: Callable[[int], None]
    ) -> Completion:
        """As `Engine.continued`."""


@runtime_checkable
class StructuredEngine(Protocol):
    """An engine that can keep its text to a JSON schema."""

    async def structured(
        self, prompt_ids: Sequence[int], sampling: Sampling, schema: Mapping[str, Any]
    ) -> Completion:
        """As `Engine.continued`; the text is JSON that fits the schema, unless it was truncated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The prompt of a request.

    ids: its tokens, `begun` included, the text with which a forced tool call begins.
    dialog: for the chat template. text: that of the template, without `begun`. messages: of the
        client, those of an earlier response included.
    key: as of `History`. form: of the reply.
    """

    ids: tuple[int, ...]
    begun: str
    dialog: tuple[Message, ...]
    messages: tuple[Message, ...]
    key: bytes
    form: ReplyFormat
    text: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class Draft:
    """A request in work, or answered.

    name: of its response. tokens: ids for a stream, None after the last.
    clients: connections that wait for it. is_read: one of them has begun to read `tokens`.
    is_delivered: one of them has got the answer.
    """

    name: str
    request: Request
    prompt: Prompt
    tokens: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)
    task: asyncio.Task[Answer] | None = None
    clients: int = 0
    is_read: bool = False
    is_delivered: bool = False

    def reader(self) -> ReplyReader:
        """A reader of one reply."""
        name = f"{self.name[-8:]}_"
        request = self.request
        return ReplyReader(self.prompt.form, request.tools, name, parallel=request.parallel)


class Session:
    """One episode of an agent program.

    id: secret by which its clients are known. sampling: parameters of all its calls, in place of
        those of the requests; each call of a turn has a seed of its own. None takes the requests'.
    max_tokens: longest reply where a request names no limit.
    calls: those whose answer a client has got, in the order of the answers.
    tools: of the environment, for the program; None for none.
    """

    def __init__(
        self,
        id: str,
        engine: Engine,
        prompts: Prompts,
        *,
        sampling: Sampling | None = None,
        max_tokens: int = 1024,
    ) -> None:
        self.id, self.engine, self.prompts = id, engine, prompts
        self.max_tokens = max_tokens
        self.history = History()
        self.calls: list[Call] = []
        self.is_over = False
        self.tools: ToolServer | None = None
        self._sampling = sampling
        self._turn_calls = 0
        self._taken = 0
        self._drafts: dict[bytes, list[Draft]] = {}
        self._responses: dict[str, tuple[Message, ...]] = {}
        # The tools of the last request, and their key.
        self._tools: tuple[tuple[ToolSchema, ...], bytes] = (), b""

    @property
    def undelivered(self) -> int:
        """Number of requests whose answer no client has got; their tokens are in no row."""
        return sum(not draft.is_delivered for each in self._drafts.values() for draft in each)

    def begin_turn(self, sampling: Sampling) -> None:
        """Sample the following calls with these parameters."""
        self._sampling, self._turn_calls = sampling, 0

    def taken(self) -> tuple[Completion, ...]:
        """Completions of the calls since the last time."""
        found = self.calls[self._taken :]
        self._taken = len(self.calls)
        return tuple(call.reply.completion for call in found)

    def close(self) -> None:
        """End the session: requests in flight are cancelled, and further ones are refused."""
        self.is_over = True
        for draft in (draft for each in self._drafts.values() for draft in each):
            if draft.task is not None:
                draft.task.cancel()

    def draft(self, request: Request, body: bytes, *, is_retry: bool) -> Draft:
        """The draft of a request; that of an earlier one for a request that was sent again.

        body: by which equal requests are known. is_retry: the client says that it is one.
        Raises SessionOver, PromptTooLong, and ConfigError for what has no prompt.
        """
        if self.is_over:
            raise SessionOver("this session is over: its episode has ended, or its deadline passed")
        self._check_schema(request)
        earlier = self._drafts.setdefault(blake2b(body, digest_size=16).digest(), [])
        for draft in earlier:
            # An equal request is a further draw, unless no client has got what was drawn.
            is_lost = not draft.is_delivered and not draft.clients
            if (is_lost or is_retry) and not _has_failed(draft):
                return draft
        draft = Draft(name=secrets.token_hex(12), request=request, prompt=self.prompt(request))
        samplings = self._samplings(request, len(draft.prompt.ids))
        draft.task = asyncio.ensure_future(self._answer(draft, samplings))
        draft.task.add_done_callback(lambda task: _finish(draft, task))
        earlier.append(draft)
        return draft

    def deliver(self, draft: Draft, answer: Answer) -> None:
        """Note that a client gets the answer, by which its calls belong to the episode."""
        if draft.is_delivered or self.is_over:
            return
        draft.is_delivered = True
        self.calls += [
            Call(node=f"{answer.id}-{i}", request=draft.request, reply=reply)
            for i, reply in enumerate(answer.replies)
        ]
        # An answer that is still to be fetched stays: it must not be sampled again.
        done = [key for key, drafts in self._drafts.items() if all(d.is_delivered for d in drafts)]
        for key in done[: max(0, len(done) - KEPT_ANSWERS)]:
            del self._drafts[key]

    def prompt(self, request: Request) -> Prompt:
        """The prompt of a request. Raises ConfigError for one that has none, PromptTooLong."""
        if request.prompt is not None:
            ids = self._text_ids(request.prompt)
            return Prompt(ids=ids, begun="", dialog=(), messages=(), key=b"", form=TEXT_ONLY)
        messages = (*self._earlier(request.previous), *request.messages)
        root = self._root(request.tools)

        def convert(part: Sequence[Message]) -> Sequence[Message]:
            # The tools stand at the beginning of a dialog only.
            tools = request.tools if len(part) == len(messages) else ()
            return self.prompts.convert(part, tools)

        key, dialog, before = self.history.adopted(root, messages, convert)
        ids, text = self.prompts.token_ids(dialog, request.tools, before)
        begun = self.prompts.beginning(request.tool_choice) if request.tools else ""
        reads_calls = bool(request.tools) and request.tool_choice != "none"
        form = self.prompts.reply_format(ids, reads_calls=reads_calls)
        if begun:
            # Text that begins a call is after any thought, even where the template has opened one.
            ids, form = ids + self.prompts.encoded(begun), replace(form, in_thought=False)
        return Prompt(
            ids=ids, begun=begun, dialog=dialog, messages=messages, key=key, form=form, text=text
        )

    def _root(self, tools: tuple[ToolSchema, ...]) -> bytes:
        """Key of all dialogs with these tools."""
        known = self._tools[0]
        # By identity, since True and 1 are equal, but two texts.
        if len(known) != len(tools) or not all(map(is_, known, tools)):
            data = repr(tools).encode(errors="replace")
            self._tools = tools, blake2b(data, digest_size=16).digest()
        return self._tools[1]

    def _check_schema(self, request: Request) -> None:
        """Raise ConfigError for a reply by a JSON schema that cannot be had here."""
        if request.schema is None:
            return
        remedy = "leave out the format, and parse the text"
        if not isinstance(self.engine, StructuredEngine):
            raise ConfigError(
                f"the local engine does not sample by a JSON schema, as vLLM does: {remedy}"
            )
        if self._sampling is not None:
            raise ConfigError(
                "replies of an episode are sampled without a JSON schema, because their log-probs "
                f"are those of the policy: {remedy}"
            )
        if request.tools:
            raise ConfigError("a reply by a JSON schema can call no tools: leave out one of both")

    def _text_ids(self, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
        """Token ids of a prompt without roles; those of its sampled beginning as sampled."""
        if not isinstance(prompt, str):
            return prompt
        size, ids = self.history.text_ids(prompt)
        return ids + self.prompts.encoded(prompt[size:])

    def _earlier(self, previous: str | None) -> tuple[Message, ...]:
        """Messages up to a response of this session. Raises SessionOver for an unknown one."""
        if not previous:
            return ()
        if previous not in self._responses:
            raise SessionOver(f"this session has no response {previous[:80]!r}")
        return self._responses[previous]

    def _samplings(self, request: Request, prompt_size: int) -> list[Sampling]:
        """Parameters of each choice. Raises PromptTooLong for a prompt that leaves no room."""
        own, limit = self._sampling, self.max_tokens
        if own is None:
            own = Sampling(
                temperature=1.0 if request.temperature is None else request.temperature,
                top_p=1.0 if request.top_p is None else request.top_p,
                top_k=request.top_k or 0,
                min_p=request.min_p or 0.0,
                seed=request.seed,
            )
            limit = request.max_tokens or limit
        else:
            own = call_sampling(own, self._turn_calls)
            # A program may want shorter replies than the run allows, and not longer ones.
            limit = min(own.max_tokens, request.max_tokens or own.max_tokens)
            self._turn_calls += 1
        own = replace(own, max_tokens=limit, stop=(*own.stop, *request.stop))
        own = fit_max_tokens(own, prompt_size, self.prompts.max_positions)
        if own.seed is None:
            return [own] * request.n
        # Equal seeds would make all choices equal.
        # Above the numbers of turns and calls, whose seeds are derived from the same one.
        seeds = [own.seed, *(derived_seed(own.seed, 2**32 + i) for i in range(1, request.n))]
        return [replace(own, seed=seed) for seed in seeds]

    async def _answer(self, draft: Draft, samplings: Sequence[Sampling]) -> Answer:
        """Sample all choices, and remember them."""
        # Together, so that an engine samples all choices in one batch.
        completions = await gather_all(self._sampled(draft, each) for each in samplings)
        replies = tuple(self._reply(draft, completion) for completion in completions)
        request, prompt = draft.request, draft.prompt
        for reply in replies:
            self._remember(prompt, request, reply)
        if request.previous is not None:
            shown = self.shown_message(replies[0])
            # Instructions of one response are not those of the next.
            dialog = [m for m in (*prompt.messages, shown) if m["role"] != "system"]
            self._responses[draft.name] = tuple(dialog)
        return Answer(id=draft.name, created=int(time.time()), request=request, replies=replies)

    async def _sampled(self, draft: Draft, sampling: Sampling) -> Completion:
        """One completion; its tokens are put into the draft's queue for a stream of one choice."""
        engine, ids = self.engine, draft.prompt.ids
        if draft.request.schema is not None:
            structured = cast(StructuredEngine, engine).structured
            return await structured(ids, sampling, draft.request.schema)
        if draft.request.stream and draft.request.n == 1 and isinstance(engine, StreamingEngine):
            return await engine.streamed(ids, sampling, draft.tokens.put_nowait)
        return await engine.continued(ids, sampling)

    def _reply(self, draft: Draft, completion: Completion) -> Reply:
        """The completion as the client gets it, with its calls, its thought and its stop string."""
        reply = read_reply(draft.reader(), draft.prompt.begun + completion.text, completion)
        if draft.request.stop and completion.finish_reason == "stop":
            reply = replace(reply, stop=self._stop_of(draft.request.stop, completion))
        if not (reply.calls or reply.reasoning):
            return reply
        # The rows of a reply do not depend on it, but filters and records read the calls.
        completion = replace(completion, tool_calls=reply.calls, reasoning=reply.reasoning)
        return replace(reply, completion=completion)

    def _stop_of(self, stops: Sequence[str], completion: Completion) -> str:
        """The string that ended the text, which is in the tokens after it; "" for none."""
        sampled = self.prompts.text(completion.completion_ids or ())
        return next((s for s in stops if sampled.startswith(s, len(completion.text))), "")

    def _remember(self, prompt: Prompt, request: Request, reply: Reply) -> None:
        """Keep the reply's tokens for the request that continues it, under what the client got."""
        completion = reply.completion
        ids = completion.completion_ids or ()
        # Prompts of token ids need no memory: clients send the sampled ids back.
        if isinstance(request.prompt, str):
            # A final stop token is no part of the text, which could not continue after it.
            if self.prompts.text(ids, with_specials=True) == completion.text:
                self.history.add_text(request.prompt + completion.text, prompt.ids + ids)
        elif request.prompt is None:
            text = prompt.begun + completion.text
            message = self.prompts.reply_message(text, reply.content, reply.reasoning, reply.calls)
            sampled = sampled_message(message, prompt.dialog, completion)
            shown = self.shown_message(reply)
            self.history.add(prompt.key, shown, (*prompt.dialog, sampled), prompt.text)

    @staticmethod
    def shown_message(reply: Reply) -> Message:
        """The reply as the client gets it."""
        if not reply.calls:
            return {"role": "assistant", "content": reply.content}
        calls = message_calls(reply.calls)
        return {"role": "assistant", "content": reply.content or None, "tool_calls": calls}


def _has_failed(draft: Draft) -> bool:
    task = cast("asyncio.Task[Answer]", draft.task)
    return task.done() and (task.cancelled() or task.exception() is not None)


def _finish(draft: Draft, task: asyncio.Task[Answer]) -> None:
    """End the stream of a draft, and its error with it, which no client may wait for any more."""
    if not task.cancelled():
        task.exception()
    draft.tokens.put_nowait(None)
