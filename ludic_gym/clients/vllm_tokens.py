"""VLLMTokenClient: token ids in, token ids out, from a vLLM server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludic_gym.clients.chat_format import (
    finish_reason,
    first_choice,
    needed,
    sampling_fields,
    token_trace,
)
from ludic_gym.clients.routing import blocks
from ludic_gym.clients.transport import HttpOptions, HttpTransport
from ludic_gym.clients.vllm_server import NEUTRAL, WHOLE, VLLMClient, versions_of
from ludic_gym.errors import ClientError, ConfigError, DataError
from ludic_gym.prompts import ExactPrompts, ReadCalls, Render
from ludic_gym.sampling import fitted, leaves_out_tokens
from ludic_gym.sampling_masks import MASK_REMEDY, packed_masks
from ludic_gym.types import Completion, Message, Sampling, ToolSchema

GENERATE_ROUTE = "/inference/v1/generate"


class VLLMTokenClient(VLLMClient):
    """Client that renders the prompts itself, so that each continues the tokens sampled before.

    base_url, model, api_key_env, options, policy_version, seeds: see `VLLMClient`.
    render: the chat template of the server's model, from messages to token ids.
    extra_body: further fields of every request; those in its "sampling_params" are vLLM's.
    prompts: the renderer, which counts the prompts that could not be continued.
    sampling_masks: the server has `--return-sampling-mask` too (`ludic serve --sampling-mask`): it
        returns the tokens that top_p, top_k and min_p leave, which training on such samples needs.
        It takes no greedy requests; these are sent as top_k=1, and have the log-prob 0.
    The server needs `--enable-scale-out`, as with `ludic serve`, and then returns the version of
    every token, and of a mixture with `--enable-return-routed-experts` its experts.
    read_calls: finds the tool calls in completions, as `render.read_calls` of `lt.chat_renderer`
        does; without it, tools are refused: use TextTools.
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
        seeds: bool = True,
        sampling_masks: bool = False,
        read_calls: ReadCalls | None = None,
    ) -> None:
        further = dict(extra_body or {})
        self._params: Mapping[str, Any] = further.pop("sampling_params", {})
        super().__init__(
            base_url,
            model,
            api_key_env=api_key_env,
            options=options,
            extra_body=further,
            policy_version=policy_version,
            seeds=seeds,
        )
        self.prompts = ExactPrompts(render)
        self._masks = sampling_masks
        self._read_calls = read_calls

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message, its prompt rendered here.

        Raises ClientError for tools without `read_calls`, and if there is no usable response.
        """
        if not tools:
            return await self.continued(self.prompts.token_ids(messages), sampling)
        if self._read_calls is None:
            raise ClientError(
                f"{len(tools)} tools were offered to a client without read_calls: give it "
                "chat_renderer(tokenizer).read_calls, or use ToolUse(protocol=TextTools())"
            )
        completion = await self.continued(self.prompts.token_ids(messages, tools), sampling)
        return self._read_calls(completion, tools)

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """The continuation of these token ids, with the version of every sampled token.

        Raises PromptTooLong for ids that leave no room for a token by `max_length`, or by the
        server; ClientError if there is no usable response, or if its tokens, log-probs and
        versions do not fit together.
        """
        return await self._continued(prompt_ids, sampling, {})

    async def structured(
        self, prompt_ids: Sequence[int], sampling: Sampling, schema: Mapping[str, Any]
    ) -> Completion:
        """As `continued`, by JSON that fits a schema; the log-probs are of what the schema leaves.

        A text that `max_tokens` ends is the beginning of such JSON.
        """
        return await self._continued(
            prompt_ids, sampling, {"structured_outputs": {"json": dict(schema)}}
        )

    async def _continued(
        self, prompt_ids: Sequence[int], sampling: Sampling, further: Mapping[str, Any]
    ) -> Completion:
        sampling = fitted(self._sent(sampling), len(prompt_ids))
        # Read before the request, because the publisher may change them meanwhile.
        version, adapter = self.policy_version, self._adapter
        async with self._counted(sampling) as model:
            # The user's parameters last, so that they may replace the neutral ones.
            params = {**NEUTRAL, **self._fields(sampling), "logprobs": 0, **further, **self._params}
            body = {"model": model, "token_ids": list(prompt_ids), "output_mode": "text"}
            response = await self.request(
                GENERATE_ROUTE, {**body, "sampling_params": params}, prefix=blocks(prompt_ids)
            )
        choice = first_choice(response)
        content = needed(needed(choice, "logprobs", dict), "content", list)
        trace = token_trace(
            list(prompt_ids), choice.get("token_ids"), [token.get("logprob") for token in content]
        )
        # An adapter's version is in its name; the spans have the base model's.
        length = len(trace["completion_ids"])
        versions = None if adapter else versions_of(choice, published=version, length=length)
        return Completion(
            text=needed(choice, "text", str),
            finish_reason=finish_reason(choice),
            sampling=sampling,
            # The oldest, because staleness must not be underestimated.
            policy_version=min(versions) if versions else version,
            versions=versions,
            sampling_mask=_packed(choice, trace) if leaves_out_tokens(sampling) else None,
            routed_experts=_experts_of(choice),
            **trace,
        )

    async def require_sampling_masks(self) -> None:
        """Raise ConfigError, with the remedy, for a server that returns no sampling masks.

        A token is sampled by each server. Raises ClientError for one that cannot be reached.
        """
        params = {"max_tokens": 1, "temperature": 1.0, "top_k": 2}
        body = {"model": await self.model(), "token_ids": [0], "sampling_params": params}
        for url in self._http.used:
            one = HttpTransport([url], self._http.api_key_env, self._http.options)
            try:
                choice = first_choice(await one.post(GENERATE_ROUTE, body))
            finally:
                await one.close()
            if choice.get("sampling_mask") is None:
                raise ConfigError(
                    f"{url} does not return the tokens that top_p, top_k and min_p leave, and "
                    f"samples could not be trained on: {MASK_REMEDY}"
                )

    def _fields(self, sampling: Sampling) -> dict[str, Any]:
        """The sampling parameters, in a form that a server of sampling masks takes too."""
        fields = sampling_fields(sampling)
        if self._masks and sampling.temperature == 0:
            return fields | {"temperature": 1.0, "top_k": 1}
        if self._masks or leaves_out_tokens(sampling):
            return fields | {"top_k": sampling.top_k or WHOLE}
        return fields


def _packed(choice: Mapping[str, Any], trace: Mapping[str, Any]) -> bytes | None:
    """The sampling masks of a choice, lists of token ids; None if the server returns none.

    Raises ClientError for masks that do not fit the tokens.
    """
    if choice.get("sampling_mask") is None:
        return None
    try:
        return packed_masks(needed(choice, "sampling_mask", list), trace["completion_ids"])
    except (DataError, TypeError, ValueError, OverflowError) as error:
        raise ClientError(f"the response's sampling_mask cannot be used: {error}") from error


def _experts_of(choice: Mapping[str, Any]) -> str | None:
    """The experts of a choice, if the server returns them. Raises ClientError for no text."""
    found = choice.get("routed_experts")
    if found is None or isinstance(found, str):
        return found
    raise ClientError(f"routed_experts is no text in base64: {found!r:.200}")
