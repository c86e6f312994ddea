"""The served model, its version, and counts of its completions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from torch import Tensor

from ludic_gym.types import Completion, FinishReason, Sampling
from ludic_train.errors import ModelNotFound
from ludic_train.inference.client import LocalChatClient
from ludic_train.inference.request_gate import Aborted, Gate
from ludic_train.inference.sampling import Ranking, Scores
from ludic_train.serving.local.params import ParamsReceiver

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# vLLM's version name of the initial params.
UNNAMED = "default"
# Entries of the cache of texts; some megabytes.
REMEMBERED_TOKENS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A completion, the version of the params that all of it comes from, and requested scores.

    scores: log-probs in nats by token id, for each token of the completion; empty unless requested.
    prompt_scores: of the prompt's tokens but the first.
    """

    completion: Completion
    version: str
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
    """A model behind a gate: it is sampled from, or its params change, never both at a time.

    name: in requests. version: of its params. text_of: text of a token.
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
        self.version = UNNAMED
        self.counts = Counts()
        self.started = int(time.time())
        self.client = LocalChatClient(
            model,
            tokenizer,
            routed_experts=routed_experts,
            prefix_cache_bytes=prefix_cache_bytes,
        )
        self.gate = Gate(self.client.settled)
        # Stages beside the model, so sampling continues while chunks arrive.
        self.receiver = ParamsReceiver(model)
        # The likeliest tokens of most positions are the same few.
        self.text_of = lru_cache(REMEMBERED_TOKENS)(lambda i: str(tokenizer.decode([i])))

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
        """A completion for each sampling, all of one version; waits while the server is paused.

        top: number of the likeliest tokens to score for each of the completion. prompt_top: for
            each of the prompt, at temperature 1; with 0 the token itself, with None nothing.
        Completions that a pause aborted have no tokens, and the finish reason "abort".
        Raises as `LocalChatClient.continued` does.
        """

        async def all_choices() -> list[Sampled]:
            choices = (self._one(prompt_ids, each, top, prompt_top) for each in samplings)
            return await asyncio.gather(*choices)

        try:
            # One entry for all choices, so that no change of the params comes between them.
            return await self.gate.let_in(all_choices)
        except Aborted:
            return [self._aborted(prompt_ids, sampling) for sampling in samplings]

    async def put_in(self, params: dict[str, Tensor], version: str) -> None:
        """Replace the params, and their version, once no request is in flight.

        params: result of `receiver.complete` or `receiver.loaded`.
        Requests that arrive meanwhile wait.
        """
        async with self.gate.alone():
            # In a thread, because a large copy would block the routes that show the state.
            await asyncio.to_thread(self.receiver.put_in, params)
            self.version = version

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
        return Sampled(completion=completion, version=self.version)

    async def _one(
        self, prompt_ids: Sequence[int], sampling: Sampling, top: int | None, prompt_top: int | None
    ) -> Sampled:
        """One completion with the requested scores, counted."""
        # Choices run in parallel; the client puts them into one batch.
        completion = await self.client.continued(prompt_ids, sampling)
        ids = completion.completion_ids or ()
        self.counts.completions += 1
        self.counts.prompt_tokens += len(prompt_ids)
        scores: Sequence[Scores] = ()
        if top:
            ranking = Ranking(top=top, sampling=sampling)
            # A second pass, because sampling keeps the log-prob of the sampled token only.
            scores = await self.client.scored([*prompt_ids, *ids], len(prompt_ids), ranking)
        prompt_scores: Sequence[Scores] = ()
        # The first token has no score, so a prompt of one token has none.
        if prompt_top is not None and len(prompt_ids) > 1:
            prompt_scores = await self.client.scored(prompt_ids, 1, Ranking(top=prompt_top))
        return Sampled(
            completion=completion, version=self.version, scores=scores, prompt_scores=prompt_scores
        )
