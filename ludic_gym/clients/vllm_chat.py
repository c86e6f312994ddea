"""VLLMChatClient: dialogs in, token ids out, from a vLLM server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ludic_gym.clients.chat_format import (
    chat_body,
    first_choice,
    needed,
    plain_completion,
    token_trace,
)
from ludic_gym.clients.openai import within_length
from ludic_gym.clients.vllm_server import NEUTRAL, VLLMClient
from ludic_gym.types import Completion, Message, Sampling, ToolSchema

CHAT_ROUTE = "/v1/chat/completions"


class VLLMChatClient(VLLMClient):
    """Chat completions from a vLLM server, with exact token ids and log-probs.

    The server renders the dialog, and parses tool calls with `--enable-auto-tool-choice`. This
    route returns no versions: if the params change during a completion, it has the version of its
    start. VLLMTokenClient has the version of every token.

        async with VLLMChatClient("http://localhost:8000/v1", policy_version=0) as client:
            dialog = [{"role": "user", "content": "2 + 3 = ?"}]
            completion = await client.complete(dialog, Sampling(seed=1))
            print(completion.text, completion.completion_ids, completion.logprobs)
    """

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message, with token ids and log-probs.

        A last message of the assistant is continued; the completion has only the new text.
        Raises ClientError if there is no usable response, or one without token ids.
        """
        # Read before the request, because the publisher may change it meanwhile.
        sampling, version = self._sent(sampling), self.policy_version
        async with self._counted(sampling) as model:
            body = {**NEUTRAL, **chat_body(model, messages, sampling, tools)}
            # 0 alternatives: the log-prob of the sampled token is returned besides.
            body |= {"return_token_ids": True, "logprobs": True, "top_logprobs": 0}
            if messages and messages[-1]["role"] == "assistant":
                body |= {"add_generation_prompt": False, "continue_final_message": True}
            said = [(message["role"], str(message["content"])) for message in messages]
            response = await self.request(CHAT_ROUTE, body, prefix=said)
        traced = replace(plain_completion(response, sampling), **_trace(response))
        traced = replace(traced, policy_version=version)
        lengths = map(len, (traced.prompt_ids or (), traced.completion_ids or ()))
        return within_length(traced, sampling, *lengths)


def _trace(response: Mapping[str, Any]) -> dict[str, Any]:
    """The token fields of a Completion. Raises ClientError if the server returned none."""
    choice = first_choice(response)
    content = needed(choice, "logprobs", dict).get("content")
    logprobs = [token.get("logprob") for token in content] if isinstance(content, list) else content
    return token_trace(response.get("prompt_token_ids"), choice.get("token_ids"), logprobs)
