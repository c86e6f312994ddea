"""Chat clients over HTTP, for any OpenAI-style server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from ludic_gym.clients.chat_format import chat_body, count_usage, needed, plain_completion
from ludic_gym.clients.transport import HttpOptions, HttpTransport, Usage
from ludic_gym.errors import ClientError
from ludic_gym.types import Completion, Message, Sampling, ToolSchema

CHAT_ROUTE, MODELS_ROUTE = "/v1/chat/completions", "/v1/models"


class HttpClient:
    """Base class of clients over HTTP: the model's name, the transport and its accounting.

    base_url: as for the `openai` package, with or without a final "/v1"; several addresses of one
        model share the load.
    model: None for the only model of the server.
    api_key_env: the environment variable with the key; if it is unset, no key is sent.
    extra_body: further fields of every request.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str | None = None,
        *,
        api_key_env: str = "OPENAI_API_KEY",
        options: HttpOptions | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        urls = [base_url] if isinstance(base_url, str) else list(base_url)
        self._http = HttpTransport(list(map(root_address, urls)), api_key_env, options)
        self._model = model
        self._extra_body = dict(extra_body or {})

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far."""
        return self._http.usage

    async def model(self) -> str:
        """The model's name on the server. Raises ClientError unless it has exactly one."""
        if self._model is None:
            listed = needed(await self._http.get(MODELS_ROUTE), "data", list)
            # vLLM lists adapters too, each with the model it belongs to.
            models = [model for model in listed if not model.get("parent")]
            if len(models) != 1:
                names = [model.get("id") for model in models]
                raise ClientError(f"the server has {len(models)} models {names}; name one of them")
            self._model = needed(models[0], "id", str)
        return self._model

    async def request(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and count its tokens. Raises ClientError if there is no response."""
        # The further fields last, so that they win.
        response = await self._http.post(path, {**body, **self._extra_body})
        prompt_tokens, completion_tokens = count_usage(response)
        self.usage.prompt_tokens += prompt_tokens
        self.usage.completion_tokens += completion_tokens
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


class OpenAIChatClient(HttpClient):
    """Chat completions from any server with OpenAI's API.

    Its completions have no token ids: usable for benchmarks, rejected by the trainer.
    """

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message. Raises ClientError if there is no usable response."""
        if messages and messages[-1]["role"] == "assistant":
            raise ClientError("this route cannot continue an assistant message; use VLLMChatClient")
        body = chat_body(await self.model(), messages, sampling, tools)
        return plain_completion(await self.request(CHAT_ROUTE, body), sampling)


def root_address(url: str) -> str:
    """The address without a final "/v1"."""
    return url.rstrip("/").removesuffix("/v1")
