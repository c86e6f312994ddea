"""Chat clients for Anthropic's messages format, which some other servers have too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ludic_gym.clients.hosted import Package
from ludic_gym.clients.messages_format import (
    content_blocks,
    messages_body,
    messages_completion,
)
from ludic_gym.clients.openai import HostedChatClient
from ludic_gym.limits import HttpOptions
from ludic_gym.packages import optional
from ludic_gym.types import Completion, Message, Sampling, ToolSchema

if TYPE_CHECKING:
    import httpx2

# The last version with temperature, top_p and top_k; models that take none of them refuse by name.
VERSION = "2023-06-01"
INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class AnthropicChatClient(HostedChatClient):
    """Chat completions from Anthropic, or from another server with its messages API.

    The API has no seed: that of the sampling parameters is not sent. A last message of the
    assistant is continued where the model allows it.
    base_url: as for the `anthropic` package, without "/v1".
    model, api_key_env, options, params, extra_body: see `HostedChatClient`.

        thinking = {"thinking": {"type": "adaptive"}}
        async with AnthropicChatClient(model="claude-...", extra_body=thinking) as client:
            question = [{"role": "user", "content": "2 + 3 = ?"}]
            completion = await client.complete(question, Sampling(max_tokens=2048))
            print(completion.reasoning, completion.text)
    """

    _chat_route = "/v1/messages"
    # Its pages have 20 models by default.
    _models_route = "/v1/models?limit=1000"

    def __init__(
        self,
        base_url: str = "https://api.anthropic.com",
        model: str | None = None,
        *,
        api_key_env: str = "ANTHROPIC_API_KEY",
        options: HttpOptions | None = None,
        params: Mapping[str, Any] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            base_url,
            model,
            api_key_env=api_key_env,
            options=options,
            params=params,
            extra_body=extra_body,
        )

    @staticmethod
    def _open_package(url: str, key: str, connections: httpx2.AsyncClient) -> Package:
        anthropic = optional("anthropic", "ludic-gym[anthropic]")
        headers: dict[str, Any] = {
            "anthropic-version": VERSION,
            "X-Api-Key": key or anthropic.omit,
            "Authorization": anthropic.omit,
        }
        client = anthropic.AsyncAnthropic(
            base_url=url,
            # Without one it would look for credentials of other kinds.
            api_key=key or "none",
            max_retries=0,
            http_client=connections,
        )
        return Package(client, headers, anthropic.APIStatusError, anthropic.APIConnectionError)

    def _body(
        self,
        model: str,
        messages: Sequence[Message],
        sampling: Sampling,
        tools: Sequence[ToolSchema],
    ) -> dict[str, Any]:
        return messages_body(model, messages, sampling, tools, self._signed)

    def _completion(self, response: Mapping[str, Any], sampling: Sampling) -> Completion:
        completion = messages_completion(response, sampling)
        thoughts = [b for b in content_blocks(response) if "thinking" in str(b.get("type"))]
        if thoughts and completion.tool_calls:
            self._remember({completion.tool_calls[0].id: thoughts})
        return completion

    def _usage(self, response: Mapping[str, Any]) -> Mapping[str, Any]:
        usage = response.get("usage") or {}
        # The three counts are of different tokens of one prompt.
        prompt = sum(usage.get(name) or 0 for name in INPUT_COUNTS)
        return {
            **usage,
            "prompt_tokens": prompt,
            "cached_tokens": usage.get("cache_read_input_tokens") or 0,
            "completion_tokens": usage.get("output_tokens") or 0,
        }
