"""The served model, its version, and counts of its completions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from ludic_gym.types import Completion, FinishReason, Sampling
from ludic_train.cluster.servers.local.params import ParamsReceiver
from ludic_train.engine.client import LocalChatClient
from ludic_train.engine.request_gate import Aborted, Gate
from ludic_train.engine.sampling import Ranking, Scores
from ludic_train.errors import ModelNotFound
from ludic_train.models.exact import param_checksums

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# vLLM's version name of the initial params.
UNNAMED = "default"
# Entries of the cache of texts; some megabytes.
REMEMBERED_TOKENS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A completion, the versions of the params that it comes from, and requested scores.

    versions: name, first token, and the one after the last; one after the other.
    scores: log-probs in nats by token id, for each token of the completion; empty unless requested.
    prompt_scores: of the prompt's tokens but the first.
    """

    completion: Completion
    versions: Sequence[tuple[str, int, int]]
    scores: Sequence[Scores] = ()
    prompt_scores: Sequence[Scores] = ()


@dataclass(slots=True)
class Counts:
    """Counts since the start, for GET /metrics.

    completions: without aborted ones. prompt_tokens: each prompt once per choice.
    """

    completions: int = 0
    prompt_tokens: int = 0


class Served:
    """A model behind a gate, whose params change between two tokens of what is sampled.

    name: in requests. text_of: text of a token.
    client: samples in batches. gate: admits requests. receiver: stages params from a trainer.
    started: Unix time in seconds. routed_experts, prefix_cache_bytes: as of `LocalChatClient`.
    """

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        routed_experts: bool = False,
        prefix_cache_bytes: int | None = None,
    ) -> None:
        self.name, self.model, self.tokenizer = name, model, tokenizer
        # By the client's number of each version.
        self._names = {0: UNNAMED}
        self.counts = Counts()
        self.started = int(time.time())
        self.client = LocalChatClient(
            model,
            tokenizer,
            routed_experts=routed_experts,
            prefix_cache_bytes=prefix_cache_bytes,
        )
        self.gate = Gate(self.client.settled)
        # Stages beside the model, so sampling continues while params arrive.
        self.receiver = ParamsReceiver(model)
        # The likeliest tokens of most positions are the same few.
        self.text_of = lru_cache(REMEMBERED_TOKENS)(lambda i: str(tokenizer.decode([i])))

    @property
    def version(self) -> str:
        """Name of the params as they are now."""
        return self._names[self.client.policy_version]

    def rename(self, version: str) -> None:
        """Give the params another name."""
        self._names[self.client.policy_version] = version

    def checksums(self) -> dict[str, str]:
        """Type and CRC-32 of each param, by name."""
        return param_checksums(self.model)

    def require(self, name: str | None) -> None:
        """Raises ModelNotFound for the name of another model."""
        if name is not None and name != self.name:
            raise ModelNotFound(f"The model `{name}` does not exist; here is `{self.name}`.")

    async def sample(
        self,
        prompt_ids: Sequence[int],
        samplings: Sequence[Sampling],
        *,
        top: int | None = None,
        prompt_top: int | None = None,
    ) -> list[Sampled]:
        """A completion for each sampling; waits while the server is paused.

        top: number of the likeliest tokens to score for each of the completion. prompt_top: for
            each of the prompt, at temperature 1; with 0 the token itself, with None nothing.
        Completions that a pause aborted have no tokens, and the finish reason "abort".
        Raises as `LocalChatClient.continued` does.
        """

        async def all_choices() -> list[Sampled]:
            choices = (self._one(prompt_ids, each, top, prompt_top) for each in samplings)
            return await asyncio.gather(*choices)

        try:
            return await self.gate.let_in(all_choices)
        except Aborted:
            return [self._aborted(prompt_ids, sampling) for sampling in samplings]

    async def put_in(self, params: Mapping[str, Tensor], version: str) -> None:
        """Replace the params, and their version, between two tokens of what is in flight.

        params: result of `receiver.complete`.
        """
        number = 1 + max(self._names)
        self._names[number] = version
        await self.client.exchange(partial(self.receiver.put_in, params), number)

    def _aborted(self, prompt_ids: Sequence[int], sampling: Sampling) -> Sampled:
        """The result of a request that a pause aborted: no text and no tokens."""
        completion = Completion(
            text="",
            finish_reason=cast(FinishReason, "abort"),
            sampling=sampling,
            prompt_ids=tuple(prompt_ids),
            completion_ids=(),
            logprobs=(),
        )
        return Sampled(completion=completion, versions=[(self.version, 0, 0)])

    async def _one(
        self, prompt_ids: Sequence[int], sampling: Sampling, top: int | None, prompt_top: int | None
    ) -> Sampled:
        """One completion with the requested scores, counted."""
        while True:
            # Choices run in parallel; the client puts them into one batch.
            completion = await self.client.continued(prompt_ids, sampling)
            found = await self._scored(prompt_ids, completion, sampling, top, prompt_top)
            # Scores are computed after the tokens, and params that have changed give others.
            is_whole = set(_versions(completion)) <= {self.client.policy_version}
            if is_whole or not any(found):
                break
        self.counts.completions += 1
        self.counts.prompt_tokens += len(prompt_ids)
        spans = groupby(enumerate(_versions(completion)), key=itemgetter(1))
        return Sampled(
            completion=completion,
            versions=[
                (self._names[number], (part := [i for i, _ in span])[0], part[-1] + 1)
                for number, span in spans
            ],
            scores=found[0],
            prompt_scores=found[1],
        )

    async def _scored(
        self,
        prompt_ids: Sequence[int],
        completion: Completion,
        sampling: Sampling,
        top: int | None,
        prompt_top: int | None,
    ) -> tuple[Sequence[Scores], Sequence[Scores]]:
        """Scores of the completion and of its prompt, those that are requested."""
        ids = completion.completion_ids or ()
        scores: Sequence[Scores] = ()
        if top:
            ranking = Ranking(top=top, sampling=sampling)
            # A second pass, because sampling keeps the log-prob of the sampled token only.
            scores = await self.client.scored([*prompt_ids, *ids], len(prompt_ids), ranking)
        prompt_scores: Sequence[Scores] = ()
        # The first token has no score, so a prompt of one token has none.
        if prompt_top is not None and len(prompt_ids) > 1:
            prompt_scores = await self.client.scored(prompt_ids, 1, Ranking(top=prompt_top))
        return scores, prompt_scores


def _versions(completion: Completion) -> Sequence[int]:
    """The client's number of the version of each token."""
    number = completion.policy_version
    assert number is not None
    return completion.versions or [number] * len(completion.completion_ids or ())
