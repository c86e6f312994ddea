"""VLLMTokenClient: token ids in, token ids out, from a vLLM server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludic_gym.clients.base import ToolSchema
from ludic_gym.clients.chat_format import (
    finish_reason,
    first_choice,
    needed,
    sampling_fields,
    token_trace,
)
from ludic_gym.clients.openai import HttpClient
from ludic_gym.clients.transport import HttpOptions
from ludic_gym.errors import ClientError
from ludic_gym.prompts import ExactPrompts, Render
from ludic_gym.types import Completion, Message, Sampling


class VLLMTokenClient(HttpClient):
    """Renders the prompts itself, so that each one continues the tokens sampled before it.

    render: the chat template of the server's model, from messages to token ids.
    prompts: the renderer, which counts the prompts that could not be continued.
    policy_version: as in VLLMChatClient, and so is what the server's log-probs need.
    The server cannot find tool calls on this route: use TextTools.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        render: Render,
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
        self.prompts = ExactPrompts(render)
        self.policy_version = policy_version

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message. Raises ClientError if there is no usable answer."""
        if tools:
            raise ClientError("this route finds no tool calls; use ToolUse(protocol=TextTools())")
        version = self.policy_version
        prompt_ids = self.prompts.token_ids(messages)
        body = {
            "model": await self.model(),
            "prompt": list(prompt_ids),
            **sampling_fields(sampling),
            "logprobs": 0,
            "return_token_ids": True,
        }
        choice = first_choice(await self.asked("/completions", body))
        logprobs = needed(choice, "logprobs", dict).get("token_logprobs")
        return Completion(
            text=needed(choice, "text", str),
            finish_reason=finish_reason(choice),
            sampling=sampling,
            policy_version=version,
            **token_trace(list(prompt_ids), choice.get("token_ids"), logprobs),
        )
