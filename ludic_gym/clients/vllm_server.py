"""What all clients of vLLM share: versions, a fleet that changes, and servers that are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ludic_gym.clients.chat_format import first_choice, needed
from ludic_gym.clients.openai import HttpClient, root_address
from ludic_gym.clients.transport import HttpOptions, HttpTransport
from ludic_gym.errors import ClientError
from ludic_gym.types import Sampling

# What a model's generation_config.json could set otherwise, and no log-prob would tell.
NEUTRAL: Mapping[str, Any] = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
COMPLETIONS_ROUTE = "/v1/completions"
PROBED_TEMPERATURE, PROBED_TOKENS = 2.0, 5


class VLLMClient(HttpClient):
    """A client of one or more vLLM servers of one model.

    policy_version: stamped on completions that start from now on; whoever publishes sets it.
    seeds: whether requests carry their seeds. On a CPU, vLLM 0.32 ends when requests with seeds
        meet in one batch.

    Before the first request at another temperature than 1, or with top_p below 1, each server is
    asked for log-probs at two temperatures: one that gives those of temperature 1 at both is
    refused.
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
        seeds: bool = True,
    ) -> None:
        super().__init__(
            base_url, model, api_key_env=api_key_env, options=options, extra_body=extra_body
        )
        self.policy_version = policy_version
        self._seeds = seeds
        self._asking: Counter[str] = Counter()
        self._adapter: str | None = None
        self._probed: set[str] = set()

    def use(self, urls: Sequence[str]) -> None:
        """Ask only these servers from now on."""
        self._http.use(list(map(root_address, urls)))

    def use_model(self, name: str) -> None:
        """Ask for this adapter from now on."""
        self._model = self._adapter = name

    def in_flight(self, name: str) -> int:
        """How many requests still wait for an answer of the model or adapter."""
        return self._asking[name]

    def _sent(self, sampling: Sampling) -> Sampling:
        """The sampling as it is asked for."""
        return sampling if self._seeds else replace(sampling, seed=None)

    @asynccontextmanager
    async def _counted(self, sampling: Sampling) -> AsyncIterator[str]:
        """The name of the model to ask, counted as in flight inside the block."""
        if sampling.temperature > 0 and (sampling.temperature != 1 or sampling.top_p < 1):
            await self._probe()
        name = await self.model()
        self._asking[name] += 1
        try:
            yield name
        finally:
            self._asking[name] -= 1

    async def _probe(self) -> None:
        """Refuse servers whose log-probs are not those of what was sampled."""
        name = await self.model()
        for url in set(self._http.used) - self._probed:
            one = HttpTransport([url], self._http.api_key_env, self._http.options)
            try:
                # Params that change between two answers can look like it; hardly twice in a row.
                refused = await _ignores_temperature(one, name)
                refused = refused and await _ignores_temperature(one, name)
            finally:
                await one.close()
            if refused:
                raise ClientError(
                    f"{url} gives log-probs before temperature and top_p, not those of what was "
                    "sampled: start it with --logprobs-mode processed_logprobs, as `ludic serve` "
                    "does, or sample at temperature 1 and top_p 1"
                )
            self._probed.add(url)


def versions_of(
    choice: Mapping[str, Any], *, published: int | None, length: int
) -> tuple[int, ...] | None:
    """The version that sampled each of `length` tokens; None where the server names none.

    Raises ClientError where it names the params that it was started with, after others were
    `published`.
    """
    spans = choice.get("weight_versions") or []
    named = [str(needed(span, "version", str)) for span in spans]
    if not all(map(str.isdecimal, named)):
        if published is None:
            return None
        raise ClientError(
            f"the server sampled from params it calls {named}, though version {published} was "
            "published to it: was it started again? Publish once more"
        )
    versions: list[int] = []
    for span, version in zip(spans, named, strict=True):
        if span["start"] != len(versions):
            raise ClientError(f"the answer's weight_versions leave gaps: {spans}")
        versions += [int(version)] * (span["end"] - span["start"])
    if spans and len(versions) != length:
        raise ClientError(f"{length} tokens, but weight_versions of {len(versions)}: {spans}")
    return tuple(versions) or None


async def _ignores_temperature(http: HttpTransport, model: str) -> bool:
    """Whether a server's log-probs are those of temperature 1 at another, too."""
    plain = await _spread(http, model, 1.0)
    heated = await _spread(http, model, PROBED_TEMPERATURE)
    # Dividing logits by 2 halves every difference of log-probs.
    return heated > 0.75 * plain


async def _spread(http: HttpTransport, model: str, temperature: float) -> float:
    """The difference, in nats, between the likeliest and the fifth likeliest first token."""
    body = {
        "model": model,
        "prompt": ".",
        "max_tokens": 1,
        "temperature": temperature,
        "logprobs": PROBED_TOKENS,
        "return_tokens_as_token_ids": True,
        **NEUTRAL,
    }
    choice = first_choice(await http.post(COMPLETIONS_ROUTE, body))
    first = needed(needed(choice, "logprobs", dict), "top_logprobs", list)[0]
    ranked = sorted(first.values(), reverse=True)[:PROBED_TOKENS]
    return float(ranked[0] - ranked[-1])
