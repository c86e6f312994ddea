"""Chat clients over HTTP for hosted models, and the one of any OpenAI-style server."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from ludic_gym.clients.attempts import Usage
from ludic_gym.clients.chat_format import (
    chat_body,
    count_usage,
    plain_completion,
    rejected_completion,
    required_field,
    signed_calls,
    thought_field_of,
    with_cached_tokens,
)
from ludic_gym.clients.faults import RefusedDialog, RejectedReply
from ludic_gym.clients.hosted import HostedTransport, Package
from ludic_gym.clients.transport import HttpTransport
from ludic_gym.dialogs import Change, changed_dialog, without_thoughts
from ludic_gym.errors import ClientError
from ludic_gym.limits import HttpOptions
from ludic_gym.sampling import fit_max_tokens
from ludic_gym.types import Completion, Message, ModelCall, Sampling, ToolSchema

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
H = TypeVar("H", HttpTransport, HostedTransport)
# Calls whose signatures are remembered: more than there are episodes in flight.
REMEMBERED = 2**12


class HttpClient(Generic[H]):
    """Base class of clients over HTTP: the model's name, the transport and its accounting.

    http: sends the requests.
    model: name on the server; None for the only model of the server, found at the first request.
    extra_body: further fields of every request; they replace fields of the same name.
    Use it as an async context manager, or call `aclose`, to close its connections.
    """

    _models_route = "/models"

    def __init__(
        self, http: H, model: str | None, extra_body: Mapping[str, Any] | None = None
    ) -> None:
        self._http: H = http
        self._model = model
        self._extra_body = dict(extra_body or {})
        # Of dialogs, because the server or its chat template has refused others.
        self._changes: list[Change] = []

    @property
    def usage(self) -> Usage:
        """Numbers of requests, retries, failures and tokens so far, over all servers."""
        return self._http.usage

    @property
    def api_key_env(self) -> str:
        """The environment variable with the key."""
        return self._http.api_key_env

    async def model(self) -> str:
        """The model's name on the server.

        Raises ClientError if no name was given and the server has not exactly one model.
        """
        if self._model is None:
            names = await self.models()
            if len(names) != 1:
                raise ClientError(f"the server has {len(names)} models {names}; name one of them")
            self._model = names[0]
        return self._model

    async def models(self) -> list[str]:
        """The names of the server's models. Raises ClientError if it does not list them."""
        listed = required_field(await self._http.get(self._models_route), "data", list)
        # vLLM lists adapters too, each with the model it belongs to.
        return [required_field(model, "id", str) for model in listed if not model.get("parent")]

    async def request(
        self, path: str, body: Mapping[str, Any], *, prefix: Sequence[Hashable] = ()
    ) -> dict[str, Any]:
        """Send a request and count its tokens; the JSON object of the response.

        path: route below the address, such as "/chat/completions". prefix: the prompt in pieces, by
        which a server is chosen that has seen its beginning.
        Raises ClientError if all attempts fail, or if the response is no JSON object.
        """
        # The further fields last, so that they win.
        response = await self._http.post(path, {**body, **self._extra_body}, prefix=prefix)
        usage = self._usage(response)
        prompt_tokens, completion_tokens = count_usage(usage)
        self.usage.prompt_tokens += prompt_tokens
        self.usage.completion_tokens += completion_tokens
        self.usage.cached_tokens += usage.get("cached_tokens") or 0
        return response

    async def _accepted(
        self, messages: Sequence[Message], send: Callable[[Sequence[Message]], Awaitable[T]]
    ) -> T:
        """The result of `send` for the dialog, in a form that the server has not refused."""
        while True:
            changes = tuple(self._changes)
            try:
                return await send(changed_dialog(messages, changes))
            except RefusedDialog as error:
                if error.change in changes:
                    raise
                # Another request may have found it meanwhile.
                if error.change not in self._changes:
                    self._changes.append(error.change)

    def _usage(self, response: Mapping[str, Any]) -> Mapping[str, Any]:
        """The response's count of tokens, by OpenAI's names."""
        # Servers that do not count leave the object out or send null.
        return with_cached_tokens(response.get("usage") or {})

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


class HostedChatClient(HttpClient[HostedTransport], ABC):
    """Base class of chat clients that adapt to what their server accepts.

    Their completions have no token ids: usable for benchmarks, rejected by the trainer. They have
    the request as it was sent, and the served model's name (`Completion.call`).

    The length of a prompt is known by the response alone: `Sampling.max_length` is compared with
    the tokens that the server has counted.

    params: values of request fields, which replace those of the sampling parameters; None leaves a
        field out: {"max_tokens": None, "max_completion_tokens": 512}.
    base_url: taken as it is. model, extra_body: see `HttpClient`.
    api_key_env: the environment variable with the key; if it is unset, no key is sent.
    options: time limits, retries and requests in flight; None: `HttpOptions()`.
    Raises ConfigError if the address is not http(s).
    renamed: fields that the server calls otherwise, by name; None for one that is left out. `probe`
        fills it. streams: True for a server that refuses requests for a whole response.
    """

    _chat_route: str
    # Of requests to a server that streams.
    _stream_fields: Mapping[str, Any] = MappingProxyType({"stream": True})

    # Servers pass tools on to the model in its own format.
    has_native_tools = True

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        api_key_env: str = "OPENAI_API_KEY",
        options: HttpOptions | None = None,
        params: Mapping[str, Any] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        http = HostedTransport(base_url, self._open_package, api_key_env, options)
        super().__init__(http, model, extra_body)
        self._params = dict(params or {})
        self.renamed: dict[str, str | None] = {}
        self.streams = False
        # Signatures by the ids of calls. They have to be sent back with them, and messages have no
        # place for them.
        self._signed: OrderedDict[str, Any] = OrderedDict()

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message; an empty one where the vendor's filter rejects the request.

        Raises ClientError if there is no usable response.
        """
        model = await self.model()

        async def send(dialog: Sequence[Message]) -> Completion:
            body = self._adapted(self._body(model, dialog, sampling, tools))
            start = time.perf_counter()
            response: Mapping[str, Any] = {}
            try:
                response = await self.request(self._chat_route, body)
                counts = count_usage(self._usage(response))
                completion = within_length(self._completion(response, sampling), sampling, *counts)
            except RejectedReply as reply:
                completion = rejected_completion(reply, sampling)
            seconds = time.perf_counter() - start
            return replace(completion, call=self._call(body, dialog, response, seconds))

        return await self._accepted(messages, send)

    def _call(
        self,
        body: Mapping[str, Any],
        dialog: Sequence[Message],
        response: Mapping[str, Any],
        seconds: float,
    ) -> ModelCall:
        """The account of a request and its response; {} for a response that is none."""
        return ModelCall(
            # A server that names no model in its response has the requested one.
            model=str(response.get("model") or body["model"]),
            fingerprint=str(response.get("system_fingerprint") or ""),
            # As plain dicts: those of a dialog hold the tokens that they were sampled from.
            messages=tuple(cast(Message, dict(message)) for message in dialog),
            parameters={n: v for n, v in body.items() if n not in ("messages", "system")},
            usage=self._usage(response),
            seconds=round(seconds, 4),
        )

    @staticmethod
    @abstractmethod
    def _open_package(url: str, key: str, connections: httpx2.AsyncClient) -> Package:
        """The vendor's package, without retries of its own. key: "" for none."""

    @abstractmethod
    def _body(
        self,
        model: str,
        messages: Sequence[Message],
        sampling: Sampling,
        tools: Sequence[ToolSchema],
    ) -> dict[str, Any]:
        """The request before it is adapted."""

    @abstractmethod
    def _completion(self, response: Mapping[str, Any], sampling: Sampling) -> Completion:
        """The response, without its call."""

    def _remember(self, signed: Mapping[str, Any]) -> None:
        """Remember what goes back with calls, by their ids."""
        self._signed.update(signed)
        while len(self._signed) > REMEMBERED:
            self._signed.popitem(last=False)

    def _adapted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request as this server and this user want it."""
        body = {**body, **self._stream_fields} if self.streams else body
        names = {name: self.renamed.get(name, name) for name in body}
        fields = {new: body[name] for name, new in names.items() if new is not None}
        left_out = {name for name, value in self._params.items() if value is None}
        request = {**fields, **self._params}
        return {n: v for n, v in request.items() if n not in left_out} | self._extra_body


class OpenAIChatClient(HostedChatClient):
    """Chat completions from any server with OpenAI's API.

    base_url: as for the `openai` package: the routes are appended to it as it is.
    model, api_key_env, options, params, extra_body: see `HostedChatClient`.

        async with OpenAIChatClient("http://localhost:8000/v1") as client:
            question = [{"role": "user", "content": "2 + 3 = ?"}]
            completion = await client.complete(question, Sampling(max_tokens=16))
            print(completion.text, client.usage.completion_tokens)
    """

    _chat_route = "/chat/completions"
    # Its streams count no tokens otherwise.
    _stream_fields = MappingProxyType({"stream": True, "stream_options": {"include_usage": True}})
    # The name under which this server sends thoughts, and expects those that led to calls.
    _thought_field = ""

    @staticmethod
    def _open_package(url: str, key: str, connections: httpx2.AsyncClient) -> Package:
        import openai

        # Named, because the package has keys of other kinds too, and refuses to be without any.
        headers: dict[str, Any] = {"Authorization": f"Bearer {key}" if key else openai.omit}
        client = openai.AsyncOpenAI(
            base_url=url,
            api_key=key or "none",
            max_retries=0,
            http_client=connections,
        )
        return Package(client, headers, openai.APIStatusError, openai.APIConnectionError)

    def _body(
        self,
        model: str,
        messages: Sequence[Message],
        sampling: Sampling,
        tools: Sequence[ToolSchema],
    ) -> dict[str, Any]:
        # This route would begin a new message, and the caller would join two half replies.
        if messages and messages[-1]["role"] == "assistant":
            raise ClientError("this route cannot continue an assistant message; use VLLMChatClient")
        return chat_body(
            model,
            messages,
            sampling,
            tools,
            thought_field="" if without_thoughts in self._changes else self._thought_field,
            signed=self._signed,
        )

    def _completion(self, response: Mapping[str, Any], sampling: Sampling) -> Completion:
        completion = plain_completion(response, sampling)
        self._thought_field = thought_field_of(response) or self._thought_field
        self._remember(signed_calls(response))
        return completion


def within_length(
    completion: Completion, sampling: Sampling, prompt_tokens: int, completion_tokens: int
) -> Completion:
    """The completion; one that is longer than `max_length` leaves room for counts as cut off.

    prompt_tokens, completion_tokens: as the server has counted them.
    Raises PromptTooLong for a prompt without room, and ClientError if the server does not count.
    """
    if sampling.max_length is None:
        return completion
    if not prompt_tokens:
        raise ClientError(
            f"max_length={sampling.max_length}, and the server does not count the tokens of "
            "prompts: leave out max_length, or limit the server"
        )
    room = fit_max_tokens(sampling, prompt_tokens).max_tokens
    return completion if completion_tokens <= room else replace(completion, finish_reason="length")
