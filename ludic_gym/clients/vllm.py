"""Clients of vLLM servers: exact token ids, versions, and a changing fleet."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ludic_gym.clients.chat_format import (
    chat_body,
    finish_reason,
    first_choice,
    plain_completion,
    required_field,
    sampling_fields,
    token_trace,
)
from ludic_gym.clients.openai import HttpClient, within_length
from ludic_gym.clients.routing import token_blocks
from ludic_gym.clients.transport import HttpTransport, root_addresses
from ludic_gym.errors import ClientError, ConfigError, DataError
from ludic_gym.limits import HttpOptions
from ludic_gym.prompts import ExactPrompts, ReadCalls, Render
from ludic_gym.sampling import MASK_REMEDY, fit_max_tokens, leaves_out_tokens, packed_masks
from ludic_gym.trail import token_ids
from ludic_gym.types import Completion, Message, Sampling, ToolSchema

# A model's generation_config.json could set these to other values, which log-probs would not show.
NEUTRAL: Mapping[str, Any] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
# A top_k that leaves out nothing: greater than any vocabulary, and an int32. A server that returns
# sampling masks rejects requests without a top_k.
WHOLE = 2**30
MODELS_ROUTE, CHAT_ROUTE = "/v1/models", "/v1/chat/completions"
GENERATE_ROUTE = "/inference/v1/generate"
# Sampling of a probe. In a text of some tokens, no model is certain of each of them.
PROBED = {"temperature": 2.0, "top_p": 1.0, "top_k": 1, "min_p": 0.0, "max_tokens": 16}
# Nats.
PROBED_ERROR = 1e-3


class VLLMClient(HttpClient[HttpTransport]):
    """A client of one or more vLLM servers of one model.

    base_url: with or without a final "/v1"; several servers share the load.
    model, extra_body: see `HttpClient`. api_key_env, options: see `HttpTransport`.
    policy_version: the version of completions that start from now on; the publisher sets it.
    seeds: False sends no seeds. On a CPU, vLLM 0.32 crashes if a batch has several requests with
        seeds.

    Before the first request at a temperature other than 1, or with top_p, top_k or min_p, each
    server is probed with a top_k of 1. A server whose log-probs are not those of the tokens that
    are left, 0 each, is rejected.
    """

    _models_route = MODELS_ROUTE

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str | None = None,
        *,
        api_key_env: str = "VLLM_API_KEY",
        options: HttpOptions | None = None,
        extra_body: Mapping[str, Any] | None = None,
        policy_version: int | None = None,
        seeds: bool = True,
    ) -> None:
        http = HttpTransport(root_addresses(base_url), api_key_env, options)
        super().__init__(http, model, extra_body)
        self.policy_version = policy_version
        self._seeds = seeds
        self._pending: Counter[str] = Counter()
        self._adapter: str | None = None
        self._probed: set[str] = set()

    def use(self, urls: Sequence[str]) -> None:
        """Use these servers only; requests in flight to others are sent again, to one of these.

        urls: addresses, with or without a final "/v1". Raises ConfigError without any.
        """
        self._http.use(root_addresses(urls))

    def use_model(self, name: str) -> None:
        """Sample from this adapter from now on; requests in flight keep the earlier one."""
        self._model = self._adapter = name

    def in_flight(self, name: str) -> int:
        """Number of requests to the model or adapter without a response.

        A publisher waits for 0 before it unloads an adapter.
        """
        return self._pending[name]

    def _sent(self, sampling: Sampling) -> Sampling:
        """The sampling parameters of the request."""
        return sampling if self._seeds else replace(sampling, seed=None)

    @asynccontextmanager
    async def _counted(self, sampling: Sampling) -> AsyncIterator[str]:
        """The model's name; the request counts as in flight inside the block."""
        if sampling.temperature > 0 and (sampling.temperature != 1 or leaves_out_tokens(sampling)):
            await self._probe()
        # The name is read once: `use_model` may change it before the response.
        name = await self.model()
        self._pending[name] += 1
        try:
            yield name
        finally:
            self._pending[name] -= 1

    async def _probe(self) -> None:
        """Raise ClientError for servers whose log-probs ignore temperature and top_k.

        By default vLLM returns log-probs before these are applied; importance ratios of a trainer
        would then be wrong without any other sign.
        """
        for url in set(self._http.used) - self._probed:
            # A transport of its own: probes count neither as usage nor as load, and go to this
            # server only.
            one = HttpTransport([url], self._http.api_key_env, self._http.options)
            try:
                response = await one.post(*self._probe_request(await self.model()))
            finally:
                await one.close()
            content = required_field(
                required_field(first_choice(response), "logprobs", dict), "content", list
            )
            # Where one token is left to draw, its log-prob is 0.
            if any(token.get("logprob", 0.0) < -PROBED_ERROR for token in content):
                raise ClientError(
                    f"{url} returns log-probs before temperature and top_p, not those of the "
                    "sampled distribution: start it with --logprobs-mode processed_logprobs, as "
                    "`ludic serve` does, or sample at temperature 1 and top_p 1"
                )
            # Only now: a server that could not be reached is probed again by the next request.
            self._probed.add(url)

    @abstractmethod
    def _probe_request(self, model: str) -> tuple[str, dict[str, Any]]:
        """Route and body of a request for some tokens, sampled as PROBED has it."""


def versions_of(
    choice: Mapping[str, Any], *, published: int | None, length: int
) -> tuple[int, ...] | None:
    """The version that sampled each of `length` tokens; None if the server returns none.

    choice: of a response; its "weight_versions" are spans {"start", "end", "version"} of tokens.
    published: the version that was pushed to the server last; None before the first push.
    Raises ClientError if it returns the params of its start after others were `published`, or if
    the spans have gaps or another length.

    >>> spans = [{"start": 0, "end": 2, "version": "7"}, {"start": 2, "end": 3, "version": "8"}]
    >>> versions_of({"weight_versions": spans}, published=8, length=3)
    (7, 7, 8)
    """
    spans = choice.get("weight_versions") or []
    named = [str(required_field(span, "version", str)) for span in spans]
    # A server that was started again has the params of its checkpoint, under a name of its own.
    if not all(map(str.isdecimal, named)):
        if published is None:
            return None
        raise ClientError(
            f"the server sampled from params that it calls {named}, though version {published} was "
            "published to it: was it started again? Publish once more"
        )
    versions: list[int] = []
    for span, version in zip(spans, named, strict=True):
        # A token without a version could be trained on with the wrong staleness.
        if span["start"] != len(versions):
            raise ClientError(f"the response's weight_versions have gaps: {spans}")
        versions += [int(version)] * (span["end"] - span["start"])
    if spans and len(versions) != length:
        raise ClientError(f"{length} tokens, but weight_versions of {len(versions)}: {spans}")
    return tuple(versions) or None


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

    has_native_tools = True

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

            async def send(dialog: Sequence[Message]) -> dict[str, Any]:
                body = {**NEUTRAL, **chat_body(model, dialog, sampling, tools)}
                # 0 alternatives: the log-prob of the sampled token is returned besides.
                body |= {"return_token_ids": True, "logprobs": True, "top_logprobs": 0}
                if dialog and dialog[-1]["role"] == "assistant":
                    body |= {"add_generation_prompt": False, "continue_final_message": True}
                said = [(message["role"], str(message["content"])) for message in dialog]
                return await self.request(CHAT_ROUTE, body, prefix=said)

            response = await self._accepted(messages, send)
        completion = plain_completion(response, sampling)
        choice = first_choice(response)
        content = required_field(choice, "logprobs", dict).get("content")
        if isinstance(content, list):
            content = [token.get("logprob") for token in content]
        trace = token_trace(response.get("prompt_token_ids"), choice.get("token_ids"), content)
        traced = replace(completion, policy_version=version, **trace)
        lengths = map(len, (traced.prompt_ids or (), traced.completion_ids or ()))
        return within_length(traced, sampling, *lengths)

    def _probe_request(self, model: str) -> tuple[str, dict[str, Any]]:
        dialog = [{"role": "user", "content": "."}]
        body = {"model": model, "messages": dialog, "logprobs": True, "top_logprobs": 0}
        return CHAT_ROUTE, body | PROBED


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
    read_calls: finds the tool calls in completions; without it, tools are refused: use TextTools.
    stop_ids: tokens that end a reply beside those that the server knows. vocab_size: ids that the
        tokenizer has; a completion with another one, of the rows of a padded vocabulary, is an
        error. `lt.token_client` gives all three.
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
        stop_ids: Sequence[int] = (),
        vocab_size: int | None = None,
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
        self._masks, self._vocab_size = sampling_masks, vocab_size
        self._stops: dict[str, Any] = {"stop_token_ids": list(stop_ids)} if stop_ids else {}
        self._read_calls = read_calls

    @property
    def has_native_tools(self) -> bool:
        """True if tool calls can be read from completions."""
        return self._read_calls is not None

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
                "read_calls, as lt.token_client does, or use ToolUse(protocol=TextTools())"
            )
        completion = await self.continued(self.prompts.token_ids(messages, tools), sampling)
        return self._read_calls(completion, tools)

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """The continuation of these token ids, with the version of every sampled token.

        Raises PromptTooLong for ids that leave no room for a token by `max_length`, or by the
        server; ClientError if there is no usable response, or if its tokens, log-probs and
        versions do not fit together.
        """
        prompt = token_ids(prompt_ids)
        sampling = fit_max_tokens(self._sent(sampling), len(prompt))
        # Read before the request, because the publisher may change them meanwhile.
        version, adapter = self.policy_version, self._adapter
        async with self._counted(sampling) as model:
            # The user's parameters last, so that they may replace the neutral ones.
            fields = {**NEUTRAL, **self._fields(sampling), **self._stops}
            params = {**fields, "logprobs": 0, **self._params}
            body = {"model": model, "token_ids": list(prompt), "output_mode": "text"}
            response = await self.request(
                GENERATE_ROUTE, {**body, "sampling_params": params}, prefix=token_blocks(prompt)
            )
        choice = first_choice(response)
        content = required_field(required_field(choice, "logprobs", dict), "content", list)
        logprobs = [token.get("logprob") for token in content]
        trace = {**token_trace([], choice.get("token_ids"), logprobs), "prompt_ids": prompt}
        largest = max(trace["completion_ids"], default=0)
        if self._vocab_size is not None and largest >= self._vocab_size:
            raise ClientError(
                f"the server sampled the id {largest}, and the tokenizer has {self._vocab_size}: a "
                "row of a padded vocabulary, which is no token"
            )
        experts = choice.get("routed_experts")
        if not (experts is None or isinstance(experts, str)):
            raise ClientError(f"routed_experts is no text in base64: {experts!r:.200}")
        # An adapter's version is in its name; the spans have the base model's.
        length = len(trace["completion_ids"])
        versions = None if adapter else versions_of(choice, published=version, length=length)
        return Completion(
            text=required_field(choice, "text", str),
            finish_reason=finish_reason(choice.get("finish_reason")),
            sampling=sampling,
            # The oldest, because staleness must not be underestimated.
            policy_version=min(versions) if versions else version,
            versions=versions,
            sampling_mask=_packed(choice, trace) if leaves_out_tokens(sampling) else None,
            routed_experts=experts,
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

    def _probe_request(self, model: str) -> tuple[str, dict[str, Any]]:
        return GENERATE_ROUTE, {
            "model": model,
            "token_ids": [0],
            "sampling_params": {**PROBED, "logprobs": 0},
        }

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
        return packed_masks(required_field(choice, "sampling_mask", list), trace["completion_ids"])
    except (DataError, TypeError, ValueError, OverflowError) as error:
        raise ClientError(f"the response's sampling_mask cannot be used: {error}") from error
