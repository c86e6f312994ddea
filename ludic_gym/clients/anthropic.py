"""Chat clients for Anthropic's messages format, which some other servers have too."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from ludic_gym.clients.chat_format import required_field
from ludic_gym.clients.openai import HostedChatClient
from ludic_gym.errors import ClientError, ConfigError
from ludic_gym.limits import HttpOptions
from ludic_gym.prompts import sendable_arguments
from ludic_gym.types import Completion, FinishReason, Message, Sampling, ToolCall, ToolSchema

# The last version with temperature, top_p and top_k; models that take none of them refuse by name.
VERSION = "2023-06-01"
# Replies with tool calls whose thinking is remembered: more than there are episodes in flight.
REMEMBERED = 2**12
FINISH_REASONS: Mapping[str, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}
INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
Block = dict[str, Any]


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
        base_url: str | Sequence[str] = "https://api.anthropic.com",
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
        # By the id of the reply's first tool call. The signed blocks have to be sent back with it,
        # and messages have no place for them.
        self._thoughts: OrderedDict[str, list[Block]] = OrderedDict()

    @staticmethod
    def _headers(key: str | None) -> dict[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}

    def _body(
        self,
        model: str,
        messages: Sequence[Message],
        sampling: Sampling,
        tools: Sequence[ToolSchema],
    ) -> dict[str, Any]:
        if sampling.min_p:
            raise ConfigError(f"Anthropic's API has no min_p, got min_p={sampling.min_p}")
        turns = list(messages)
        rules = []
        while turns and turns[0]["role"] == "system":
            rules.append(turns.pop(0)["content"] or "")
        fields: dict[str, Any] = {
            "model": model,
            "messages": joined_turns([(turn["role"], self._blocks(turn)) for turn in turns]),
            "system": "\n\n".join(rules),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "stop_sequences": list(sampling.stop),
            "tools": [_tool(tool) for tool in tools],
        }
        # Without effect, and refused by some models.
        unused = {"system": "", "top_k": 0, "stop_sequences": [], "tools": []}
        return {name: value for name, value in fields.items() if unused.get(name) != value}

    def _completion(self, response: Mapping[str, Any], sampling: Sampling) -> Completion:
        blocks = required_field(response, "content", list)
        for block in blocks:
            if not isinstance(block, dict):
                raise ClientError(f"a block of the response is {block!r}, not an object")
        # Others, such as "end_turn" and "refusal", end a reply as the model left it.
        stop_reason = FINISH_REASONS.get(str(response.get("stop_reason")), "stop")
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        if calls:
            thoughts = [block for block in blocks if "thinking" in str(block.get("type"))]
            if thoughts:
                self._thoughts[required_field(calls[0], "id", str)] = thoughts
            while len(self._thoughts) > REMEMBERED:
                self._thoughts.popitem(last=False)
        return Completion(
            text="".join(required_field(b, "text", str) for b in blocks if b.get("type") == "text"),
            finish_reason=stop_reason,
            sampling=sampling,
            tool_calls=tuple(
                ToolCall(
                    id=required_field(call, "id", str),
                    name=required_field(call, "name", str),
                    arguments=json.dumps(required_field(call, "input", dict)),
                )
                for call in calls
            ),
            reasoning="\n\n".join(
                required_field(b, "thinking", str) for b in blocks if b.get("type") == "thinking"
            ),
        )

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

    def _blocks(self, message: Message) -> list[Block]:
        """The content of a message."""
        if message["role"] == "tool":
            result = {"tool_use_id": message["tool_call_id"], "content": message["content"] or ""}
            return [{"type": "tool_result", **result}]
        # The API refuses a text without characters.
        texts = [{"type": "text", "text": message["content"]}] if message["content"] else []
        calls = message.get("tool_calls") or []
        thoughts = self._thoughts.get(calls[0]["id"], []) if calls else []
        uses = [
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": json.loads(sendable_arguments(call["function"]["arguments"])),
            }
            for call in calls
        ]
        return [*thoughts, *texts, *uses]


def joined_turns(turns: Sequence[tuple[str, list[Block]]]) -> list[dict[str, Any]]:
    """Messages whose roles alternate; a turn without content is left out.

    turns: role and content of each. The results of a reply's tool calls belong in one message.

    >>> text = {"type": "text", "text": "hi"}
    >>> [len(turn["content"]) for turn in joined_turns([("user", [text]), ("user", [text, text])])]
    [3]
    """
    joined: list[dict[str, Any]] = []
    for role, blocks in turns:
        role = "user" if role == "tool" else role
        if joined and joined[-1]["role"] == role:
            joined[-1]["content"] += blocks
        elif blocks:
            joined.append({"role": role, "content": list(blocks)})
    return joined


def _tool(schema: ToolSchema) -> dict[str, Any]:
    """The tool of a chat API's schema; the format is otherwise the same."""
    function = dict(schema["function"])
    parameters = function.pop("parameters", {"type": "object"})
    return {**function, "input_schema": parameters}
