"""Chat clients over HTTP: any OpenAI-style server, and vLLM with its token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from ludic_gym.clients.base import ToolSchema
from ludic_gym.clients.chat_format import (
    chat_body,
    count_usage,
    first_choice,
    needed,
    plain_completion,
    token_trace,
)
from ludic_gym.clients.transport import HttpOptions, HttpTransport, Usage
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.types import Completion, Message, Sampling

CHAT_ROUTE = "/chat/completions"


class HttpClient:
    """What all clients over HTTP share: the model's name, the wire and its accounting.

    base_url: as for the `openai` package, with or without a final "/v1"; several of one model
        share the load.
    model: None asks the server which one it has.
    api_key_env: the environment variable that holds the key; unset means that none is sent.
    extra_body: further fields of every request.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str | None = None,
        *,
        api_key_env: str,
        options: HttpOptions | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._http = HttpTransport(_addresses(base_url), api_key_env, options or HttpOptions())
        self._model = model
        self._extra_body = dict(extra_body or {})

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far."""
        return self._http.usage

    async def model(self) -> str:
        """The model's name on the server. Raises ClientError if the server has not just one."""
        if self._model is None:
            models = needed(await self._http.get("/models"), "data", list)
            if len(models) != 1:
                names = [model.get("id") for model in models]
                raise ClientError(f"the server has {len(models)} models {names}; name one of them")
            self._model = needed(models[0], "id", str)
        return self._model

    async def asked(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The server's answer. Raises ClientError if there is none."""
        answer = await self._http.post(path, {**body, **self._extra_body})
        prompt_tokens, completion_tokens = count_usage(answer)
        self.usage.prompt_tokens += prompt_tokens
        self.usage.completion_tokens += completion_tokens
        return answer

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


class OpenAIChatClient(HttpClient):
    """Chat completions from any server that speaks the OpenAI format.

    Its completions have no token ids: good for benchmarks, refused by the trainer.
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
        super().__init__(
            base_url, model, api_key_env=api_key_env, options=options, extra_body=extra_body
        )

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message. Raises ClientError if there is no usable answer."""
        if messages and messages[-1]["role"] == "assistant":
            raise ClientError("this route cannot continue an assistant message; use VLLMChatClient")
        body = chat_body(await self.model(), messages, sampling, tools)
        return plain_completion(await self.asked(CHAT_ROUTE, body), sampling)


class VLLMChatClient(HttpClient):
    """Chat completions from a vLLM server, with exact token ids and log-probs.

    The server's log-probs are those of the sampled distribution only if it was started with
    `--logprobs-mode processed_logprobs`. Tools need its `--enable-auto-tool-choice`.
    policy_version: stamped on completions that start from now on; whoever publishes sets it.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str | None = None,
        *,
        api_key_env: str = "VLLM_API_KEY",
        options: HttpOptions | None = None,
        extra_body: Mapping[str, Any] | None = None,
        policy_version: int | None = None,
    ) -> None:
        super().__init__(
            base_url, model, api_key_env=api_key_env, options=options, extra_body=extra_body
        )
        self.policy_version = policy_version

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message. Raises ClientError if there is no usable answer."""
        version = self.policy_version
        body = chat_body(await self.model(), messages, sampling, tools)
        body |= {"return_token_ids": True, "logprobs": True, "top_logprobs": 0}
        if messages and messages[-1]["role"] == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        answer = await self.asked(CHAT_ROUTE, body)
        plain = plain_completion(answer, sampling)
        return _traced(plain, answer, version)


def _traced(plain: Completion, answer: Mapping[str, Any], version: int | None) -> Completion:
    choice = first_choice(answer)
    content = needed(choice, "logprobs", dict).get("content")
    logprobs = [token.get("logprob") for token in content] if isinstance(content, list) else content
    trace = token_trace(answer.get("prompt_token_ids"), choice.get("token_ids"), logprobs)
    return Completion(
        text=plain.text,
        finish_reason=plain.finish_reason,
        sampling=plain.sampling,
        tool_calls=plain.tool_calls,
        policy_version=version,
        **trace,
    )


def _addresses(base_url: str | Sequence[str]) -> list[str]:
    urls = [base_url] if isinstance(base_url, str) else list(base_url)
    if not urls:
        raise ConfigError("base_url is one address or several, got none")
    return [url if url.rstrip("/").endswith("/v1") else f"{url.rstrip('/')}/v1" for url in urls]
