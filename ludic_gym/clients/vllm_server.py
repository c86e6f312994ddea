"""Base class of vLLM clients: versions, a changing fleet, and checks of servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ludic_gym.clients.chat_format import first_choice, needed
from ludic_gym.clients.openai import HttpClient, root_addresses
from ludic_gym.clients.transport import HttpOptions, HttpTransport
from ludic_gym.errors import ClientError
from ludic_gym.sampling import leaves_out_tokens
from ludic_gym.types import Sampling

# A model's generation_config.json could set these to other values, which log-probs would not show.
NEUTRAL: Mapping[str, Any] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
# A top_k that leaves out nothing: greater than any vocabulary, and an int32. A server that returns
# sampling masks rejects requests without a top_k.
WHOLE = 2**30
MODELS_ROUTE, COMPLETIONS_ROUTE = "/v1/models", "/v1/completions"
PROBED_TEMPERATURE, PROBED_TOKENS = 2.0, 5


class VLLMClient(HttpClient):
    """A client of one or more vLLM servers of one model.

    base_url: with or without a final "/v1". model, api_key_env, options, extra_body: see
        `HttpClient`.
    policy_version: the version of completions that start from now on; the publisher sets it.
    seeds: False sends no seeds. On a CPU, vLLM 0.32 crashes if a batch has several requests with
        seeds.

    Before the first request at a temperature other than 1, or with top_p, top_k or min_p, each
    server is probed for log-probs at two temperatures. A server that returns those of temperature 1
    at both is rejected.
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
        super().__init__(
            root_addresses(base_url),
            model,
            api_key_env=api_key_env,
            options=options,
            extra_body=extra_body,
        )
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
        """Raise ClientError for servers whose log-probs ignore temperature and top_p.

        By default vLLM returns log-probs before both are applied; importance ratios of a trainer
        would then be wrong without any other sign.
        """
        name = await self.model()
        for url in set(self._http.used) - self._probed:
            # A transport of its own: probes count neither as usage nor as load, and go to this
            # server only.
            one = HttpTransport([url], self._http.api_key_env, self._http.options)
            try:
                # A change of params between two responses can look the same, but hardly twice.
                rejected = await _ignores_temperature(one, name)
                rejected = rejected and await _ignores_temperature(one, name)
            finally:
                await one.close()
            if rejected:
                raise ClientError(
                    f"{url} returns log-probs before temperature and top_p, not those of the "
                    "sampled distribution: start it with --logprobs-mode processed_logprobs, as "
                    "`ludic serve` does, or sample at temperature 1 and top_p 1"
                )
            # Only now: a server that could not be reached is probed again by the next request.
            self._probed.add(url)


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
    named = [str(needed(span, "version", str)) for span in spans]
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


async def _ignores_temperature(http: HttpTransport, model: str) -> bool:
    """True if a server returns the log-probs of temperature 1 at another one too."""
    plain = await _spread(http, model, 1.0)
    heated = await _spread(http, model, PROBED_TEMPERATURE)
    # Dividing logits by 2 halves every difference of log-probs.
    return heated > 0.75 * plain


async def _spread(http: HttpTransport, model: str, temperature: float) -> float:
    """Difference, in nats, between the most likely and the fifth most likely first token."""
    # A difference, because normalization shifts all log-probs of a temperature by a constant.
    body = {
        "model": model,
        "prompt": ".",
        "max_tokens": 1,
        "temperature": temperature,
        "logprobs": PROBED_TOKENS,
        "return_tokens_as_token_ids": True,
        **NEUTRAL,
        "top_k": WHOLE,
    }
    choice = first_choice(await http.post(COMPLETIONS_ROUTE, body))
    first = needed(needed(choice, "logprobs", dict), "top_logprobs", list)[0]
    ranked = sorted(first.values(), reverse=True)[:PROBED_TOKENS]
    return float(ranked[0] - ranked[-1])
