"""A session: the model calls of one run of an agent program, one episode.

Tokens are owned here: a prompt continues the ids that were sampled for the replies in it, and what
a client gets is text made from these ids. No text of a reply is ever tokenised again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol, cast, runtime_checkable

from ludic_gym.dialogs import sendable_dialog, tool_names
from ludic_gym.errors import ConfigError, LudicError
from ludic_gym.prompts import sampled_message, sharing
from ludic_gym.sampling import call_sampling, fit_max_tokens
from ludic_gym.text_calls import ReplyFormat
from ludic_gym.tools.mcp_server import ToolServer
from ludic_gym.trail import Trail
from ludic_gym.types import ChatClient, Completion, Message, Sampling, ToolCall
from ludic_train.agents.history import History
from ludic_train.agents.prompts import Prompts
from ludic_train.agents.types import Request, Response
from ludic_train.errors import SessionOver

# Responses that a client may request once more, as it does after a time limit of its own.
KEPT_RESPONSES = 8


@runtime_checkable
class Engine(Protocol):
    """Continues token ids: the local engine, or `VLLMTokenClient` for servers."""

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """The continuation, with the ids and log-probs of its tokens."""


@dataclass(slots=True, eq=False)
class Pending:
    """A request in work, or answered.

    clients: connections that wait for it. is_delivered: one of them has got the response.
    """

    task: asyncio.Task[Response]
    clients: int = 0
    is_delivered: bool = False

    @property
    def has_failed(self) -> bool:
        """True if there will be no response."""
        task = self.task
        return task.done() and (task.cancelled() or task.exception() is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prompt:
    """Tokens of a prompt, `begun` included, the text with which a forced tool call begins.

    dialog: for the chat template. key: as of `History`. form: of the reply.
    """

    ids: Trail[int]
    begun: str
    dialog: Trail[Message]
    key: bytes
    form: ReplyFormat


class Session:
    """One episode of an agent program.

    id: secret by which its clients are known.
    engine, prompts: of a model whose tokens are recorded. For any other chat client, prompts is
        None, and texts alone are.
    sampling: parameters of all its calls, in place of those of the requests; each call of a turn
        has a seed of its own. None takes the requests'.
    max_tokens: longest reply where a request names no limit.
    calls: responses that a client has got, in the order of their delivery.
    tools: of the environment, for the program; None for none.
    fault: error of the last call; None for none.
    """

    def __init__(
        self,
        id: str,
        engine: Engine | ChatClient,
        prompts: Prompts | None,
        *,
        sampling: Sampling | None = None,
        max_tokens: int = 1024,
    ) -> None:
        self.id, self.engine, self.prompts = id, engine, prompts
        self.max_tokens = max_tokens
        self.history = History()
        self.calls: list[Response] = []
        self.is_over = False
        self.tools: ToolServer | None = None
        self.fault: LudicError | None = None
        self._sampling = sampling
        self._turn_calls = 0
        self._taken = 0
        self._prompted: Sequence[Message] = ()
        self._pending: dict[bytes, list[Pending]] = {}
        # Messages up to each response, of dialects whose requests name the one that they continue.
        self._dialogs: dict[str, Trail[Message]] = {"": Trail([])}

    @property
    def undelivered(self) -> int:
        """Number of requests whose response no client has got; their tokens are in no row."""
        return sum(not pending.is_delivered for each in self._pending.values() for pending in each)

    def begin_turn(self, sampling: Sampling) -> None:
        """Sample the following calls with these parameters."""
        self._sampling, self._turn_calls = sampling, 0

    def taken(self) -> tuple[Completion, ...]:
        """Completions of the calls since the last time."""
        calls = self.calls[self._taken :]
        self._taken = len(self.calls)
        return tuple(call.completion for call in calls)

    def close(self) -> None:
        """End the session: requests in flight are cancelled, and further ones are refused."""
        self.is_over = True
        if self.prompts is not None:
            self.prompts.check(self._prompted)
        for pending in (pending for each in self._pending.values() for pending in each):
            pending.task.cancel()

    def pending(self, request: Request, body: bytes, *, is_retry: bool) -> Pending:
        """A request in work; that of an earlier one for a request that was sent again.

        body: by which equal requests are known. is_retry: the client says that it is one.
        Raises SessionOver.
        """
        if self.is_over:
            raise SessionOver("this session is over: its episode has ended, or its deadline passed")
        earlier = self._pending.setdefault(blake2b(body, digest_size=16).digest(), [])
        for pending in earlier:
            # An equal request is a further draw, unless no client has got what was drawn.
            is_lost = not pending.is_delivered and not pending.clients
            if (is_lost or is_retry) and not pending.has_failed:
                return pending
        pending = Pending(asyncio.ensure_future(self._respond(request)))
        # Its error is retrieved here, since no client may wait for it any more.
        pending.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        earlier.append(pending)
        return pending

    async def response(self, pending: Pending) -> Response:
        """The response; sampling continues if the client leaves.

        Raises SessionOver if the session has ended, PromptTooLong, ConfigError for a request
        without a prompt, and the errors of the engine.
        """
        try:
            return await asyncio.shield(pending.task)
        except asyncio.CancelledError:
            if pending.task.cancelled():
                raise SessionOver("this session ended while the reply was sampled") from None
            raise

    def deliver(self, pending: Pending) -> None:
        """Note that a client gets the response, by which its tokens belong to the episode."""
        if pending.is_delivered or self.is_over:
            return
        pending.is_delivered = True
        self.calls.append(pending.task.result())
        # One that is still to be fetched stays: it must not be sampled again.
        done = [key for key, each in self._pending.items() if all(p.is_delivered for p in each)]
        for key in done[: max(0, len(done) - KEPT_RESPONSES)]:
            del self._pending[key]

    def prompt_ids(self, request: Request) -> Trail[int]:
        """Token ids of the prompt of a request. Raises ConfigError for one that has none."""
        if self.prompts is None:
            raise ConfigError("tokens are counted for models alone whose tokenizer is here")
        return self._prompt(self.prompts, request, self._messages(request)).ids

    async def _respond(self, request: Request) -> Response:
        """Sample the reply, and remember it."""
        id, messages = secrets.token_hex(12), self._messages(request)
        try:
            if self.prompts is None:
                response = await self._chatted(id, request, messages)
            else:
                response = await self._sampled(id, request, messages, self.prompts)
        except LudicError as error:
            self.fault = error
            raise
        self.fault = None
        if request.previous is not None:
            # Instructions of one response are not those of the next.
            dialog = [m for m in (*messages, response.message) if m["role"] != "system"]
            self._dialogs[id] = Trail(dialog).on(self._dialogs[request.previous])
        return response

    async def _chatted(self, id: str, request: Request, messages: Sequence[Message]) -> Response:
        """The response of a client that makes its prompts itself."""
        client = cast(ChatClient, self.engine)
        if request.tool_choice not in ("auto", "none"):
            raise ConfigError("this model's client offers no required calls")
        tools = () if request.tool_choice == "none" else request.tools
        completion = await client.complete(messages, self._call_sampling(request, 0), tools)
        completion = sharing(completion, self.calls[-1].completion if self.calls else None)
        return Response(
            id=id,
            created=int(time.time()),
            request=request,
            content=completion.text,
            reasoning=completion.reasoning,
            calls=completion.tool_calls,
            completion=completion,
        )

    async def _sampled(
        self, id: str, request: Request, messages: Sequence[Message], prompts: Prompts
    ) -> Response:
        """The response whose tokens continue those of the session."""
        engine = self.engine
        assert isinstance(engine, Engine)
        prompt = self._prompt(prompts, request, messages)
        self._prompted = prompt.dialog
        sampling = self._call_sampling(request, len(prompt.ids))
        completion = sharing(await engine.continued(prompt.ids, sampling), None)
        text = prompt.begun + completion.text
        content, reasoning, named_calls = prompt.form.parts(text, request.tools)
        calls = tuple(
            ToolCall(id=f"call_{id[-8:]}_{i}", name=name, arguments=arguments)
            for i, (name, arguments) in enumerate(named_calls[: None if request.parallel else 1], 1)
        )
        if calls or reasoning:
            # Rows do not depend on it, but filters and records read the calls.
            completion = replace(completion, tool_calls=calls, reasoning=reasoning)
        response = Response(
            id=id,
            created=int(time.time()),
            request=request,
            content=content,
            reasoning=reasoning,
            calls=calls,
            stop=_stop_of(request.sampling.stop, completion, prompts),
            completion=completion,
        )
        reply = prompts.reply_message(text, content, reasoning, calls)
        # Templates that write tools have them in each prompt, so that they must agree too.
        tools = request.tools if prompts.writes_tools else ()
        sampled = sampled_message(reply, prompt.dialog, completion, tools=tools)
        self.history.add(prompt.key, response.message, prompt.dialog.then(sampled))
        return response

    def _messages(self, request: Request) -> tuple[Message, ...]:
        """The whole dialog. Raises SessionOver for one that continues an unknown response."""
        previous = request.previous
        if not previous:
            return request.messages
        if previous not in self._dialogs:
            raise SessionOver(f"this session has no response {previous[:80]!r}")
        return (*self._dialogs[previous], *request.messages)

    def _prompt(self, prompts: Prompts, request: Request, messages: Sequence[Message]) -> _Prompt:
        """The prompt of a request. Raises ConfigError for one that has none, PromptTooLong."""
        names = tool_names(messages)

        def convert(part: Sequence[Message]) -> Sequence[Message]:
            is_whole = len(part) == len(messages)
            part = sendable_dialog(part, names)
            # The tools stand at the beginning of a dialog only.
            return prompts.convert(part, request.tools if is_whole else ())

        root = blake2b(repr(request.tools).encode(errors="replace"), digest_size=16).digest()
        key, dialog = self.history.adopted(root, messages, convert)
        ids = prompts.token_ids(dialog, request.tools)
        begun = prompts.beginning(request.tool_choice) if request.tools else ""
        reads_calls = bool(request.tools) and request.tool_choice != "none"
        form = prompts.reply_format(ids, reads_calls=reads_calls)
        if begun:
            # Text that begins a call is after any thought, even where the template has opened one.
            ids, form = ids + prompts.encoded(begun), replace(form, in_thought=False)
        return _Prompt(ids=ids, begun=begun, dialog=dialog, key=key, form=form)

    def _call_sampling(self, request: Request, prompt_tokens: int) -> Sampling:
        """Parameters of a call. Raises PromptTooLong for a prompt that leaves no room."""
        if self._sampling is None:
            sampling, stops = request.sampling, request.sampling.stop
            limit = request.max_tokens or self.max_tokens
        else:
            sampling = call_sampling(self._sampling, self._turn_calls)
            stops = (*sampling.stop, *request.sampling.stop)
            # A program may want shorter replies than the run allows, and not longer ones.
            limit = min(sampling.max_tokens, request.max_tokens or sampling.max_tokens)
            self._turn_calls += 1
        sampling = replace(sampling, max_tokens=limit, stop=stops)
        positions = None if self.prompts is None else self.prompts.max_positions
        return fit_max_tokens(sampling, prompt_tokens, positions)


def _stop_of(stops: Sequence[str], completion: Completion, prompts: Prompts) -> str:
    """The string that ended the text, which is in the tokens after it; "" for none."""
    if completion.finish_reason != "stop" or not stops:
        return ""
    sampled = prompts.text(completion.completion_ids or ())
    return next((s for s in stops if sampled.startswith(s, len(completion.text))), "")
