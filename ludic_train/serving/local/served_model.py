"""The model that is served, its version, and what has been sampled from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from torch import Tensor

from ludic_gym.types import Completion, FinishReason, Sampling
from ludic_train.errors import ModelNotFound
from ludic_train.inference.client import LocalChatClient
from ludic_train.inference.sampling import Ranking, Scores
from ludic_train.serving.local.params import ParamsReceiver
from ludic_train.serving.local.request_gate import Aborted, Gate

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What vLLM calls params that nobody has published.
UNNAMED = "default"
REMEMBERED_TOKENS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How many of the likeliest tokens are to be told with each; None: not even its own score.

    top: in the completion. prompt: in the prompt, at temperature 1.
    """

    top: int | None = None
    prompt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A completion; the version of the params that all of it comes from; scores that were wanted.

    prompt_scores: of the prompt's tokens but the first.
    """

    completion: Completion
    version: str
    scores: Sequence[Scores] = ()
    prompt_scores: Sequence[Scores] = ()


@dataclass(slots=True)
class Counts:
    """Since the start. completions: that ended by themselves."""

    completions: int = 0
    prompt_tokens: int = 0
    sampled_tokens: int = 0


@dataclass(slots=True, eq=False)
class Served:
    """A model behind a gate: it is sampled from, or its params change, never both at a time.

    name: what requests call it. version: of its params. text_of: a token's text.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    version: str = UNNAMED
    counts: Counts = field(default_factory=Counts)
    started: int = field(default_factory=lambda: int(time.time()))
    client: LocalChatClient = field(init=False)
    gate: Gate = field(init=False)
    receiver: ParamsReceiver = field(init=False)
    text_of: Callable[[int], str] = field(init=False)

    def __post_init__(self) -> None:
        self.client = LocalChatClient(self.model, self.tokenizer)
        self.gate = Gate(self.client.settled)
        self.receiver = ParamsReceiver(self.model)
        # The same few tokens are told again and again.
        self.text_of = lru_cache(REMEMBERED_TOKENS)(lambda i: str(self.tokenizer.decode([i])))

    def require(self, name: str | None) -> None:
        """Raises ModelNotFound for the name of another model."""
        if name is not None and name != self.name:
            raise ModelNotFound(f"The model `{name}` does not exist; here is `{self.name}`.")

    async def sample(
        self, prompt_ids: Sequence[int], samplings: Sequence[Sampling], wanted: Wanted
    ) -> list[Sampled]:
        """A completion for each sampling, all of one version; waits while the server is paused.

        Those that a pause ended have no tokens, and the reason "abort".
        Raises as `LocalChatClient.continued` does.
        """
        try:
            return await self.gate.let_in(lambda: self._all(prompt_ids, samplings, wanted))
        except Aborted:
            return [self._aborted(prompt_ids, sampling) for sampling in samplings]

    async def put_in(self, params: dict[str, Tensor], version: str) -> None:
        """Sample from these from here on, under this name."""
        async with self.gate.alone():
            await asyncio.to_thread(self.receiver.put_in, params)
            self.version = version

    def _aborted(self, prompt_ids: Sequence[int], sampling: Sampling) -> Sampled:
        completion = Completion(
            text="",
            finish_reason=cast(FinishReason, "abort"),
            sampling=sampling,
            prompt_ids=tuple(prompt_ids),
            completion_ids=(),
            logprobs=(),
        )
        return Sampled(completion=completion, version=self.version)

    async def _all(
        self, prompt_ids: Sequence[int], samplings: Sequence[Sampling], wanted: Wanted
    ) -> list[Sampled]:
        if len(samplings) == 1:
            return [await self._one(prompt_ids, samplings[0], wanted)]
        return await asyncio.gather(*(self._one(prompt_ids, each, wanted) for each in samplings))

    async def _one(self, prompt_ids: Sequence[int], sampling: Sampling, wanted: Wanted) -> Sampled:
        completion = await self.client.continued(prompt_ids, sampling)
        ids = completion.completion_ids or ()
        self.counts.completions += 1
        self.counts.prompt_tokens += len(prompt_ids)
        self.counts.sampled_tokens += len(ids)
        scores: Sequence[Scores] = ()
        if wanted.top:
            heat, top_p = sampling.temperature, sampling.top_p
            ranking = Ranking(top=wanted.top, temperature=heat, top_p=top_p)
            scores = await self.client.scored([*prompt_ids, *ids], len(prompt_ids), ranking)
        prompt_scores: Sequence[Scores] = ()
        if wanted.prompt is not None and len(prompt_ids) > 1:
            prompt_scores = await self.client.scored(prompt_ids, 1, Ranking(top=wanted.prompt))
        return Sampled(
            completion=completion,
            version=self.version,
            scores=scores,
            prompt_scores=prompt_scores,
        )
