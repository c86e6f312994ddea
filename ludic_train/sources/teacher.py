"""Batches with log-probs of a teacher, for on-policy distillation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludic_gym.clients.chat_format import first_choice, required_field
from ludic_gym.clients.openai import HttpClient
from ludic_gym.clients.transport import HttpTransport, root_addresses
from ludic_gym.clients.vllm import MODELS_ROUTE
from ludic_gym.concurrency import gather_all
from ludic_gym.limits import HttpOptions
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import TeacherError
from ludic_train.sources.base import BatchSource, DurableSource, Pace
from ludic_train.types import REFERENCE, SAWBatch, SAWItem, TopTokens

# Least probability of the tokens that a server did not name: its log-probs, which are float32, add
# up to 1 within less than this.
LEAST_REST = 1e-6
# In vLLM's responses, the log-prob of a token without probability.
NO_LOGPROB = -9999.0
# By how much probabilities from a server may exceed 1.
MOST_EXCESS = 1e-3


class Teacher(Protocol):
    """Source of log-probs of a student's tokens, under another model."""

    async def logprobs(self, items: Sequence[SAWItem]) -> Sequence[NDArray[np.float32]]:
        """Nats of each token of each row given what came before it, [T] per item; 0 off the mask.

        At the row's own temperature, and renormalised over its sampling masks.
        """

    async def top_tokens(self, items: Sequence[SAWItem], k: int) -> Sequence[TopTokens]:
        """The k most likely tokens at each sampled token of each row, given what came before it.

        Called for algorithms with a `teacher_top_k`. The distribution is that of `logprobs`.
        """


class TaughtBatchSource:
    """The batches of another source, with a teacher's log-probs attached as REFERENCE.

    For an algorithm with a `teacher_top_k`, with the teacher's most likely tokens.
    """

    def __init__(self, source: BatchSource, teacher: Teacher) -> None:
        self.source = source
        self.teacher = teacher

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """The next batch of the source, with the teacher's log-probs."""
        batch = await self.source.next_batch(algo)
        items = batch.items
        if REFERENCE in algo.attach:
            scored = await self.teacher.logprobs(items)
            items = tuple(
                replace(item, attachments={**item.attachments, REFERENCE: logprobs})
                for item, logprobs in zip(items, scored, strict=True)
            )
        if algo.teacher_top_k is not None:
            tops = await self.teacher.top_tokens(items, algo.teacher_top_k)
            pairs = zip(items, tops, strict=True)
            items = tuple(replace(item, teacher=top) for item, top in pairs)
        return replace(batch, items=items)

    def claim(self) -> None:
        """Claim the data of the source, where it is durable."""
        # This class looks durable to a trainer, whatever its source is.
        if isinstance(self.source, DurableSource):
            self.source.claim()

    async def begin(self, pace: Pace) -> None:
        """Start the source, where it is durable."""
        if isinstance(self.source, DurableSource):
            await self.source.begin(pace)

    async def trained(self, version: int) -> None:
        """Note it at the source, where it is durable."""
        if isinstance(self.source, DurableSource):
            await self.source.trained(version)

    def state_dict(self) -> dict[str, Any]:
        """The source's own state."""
        return self.source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where the source that returned `state` stopped."""
        self.source.load_state_dict(state)


class VLLMTeacher(HttpClient[HttpTransport]):
    """Log-probs of rows from `/v1/completions` of a vLLM server, as `prompt_logprobs`.

    The server's model must have the student's tokenizer: rows are sent as token ids. It computes
    prompts at temperature 1, whatever the request says, so rows must have been sampled at that.
    base_url, model, options, extra_body: as for the chat clients.
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
    ) -> None:
        http = HttpTransport(root_addresses(base_url), api_key_env, options)
        super().__init__(http, model, extra_body)

    async def logprobs(self, items: Sequence[SAWItem]) -> Sequence[NDArray[np.float32]]:
        """Nats of each sampled token of each row given what came before it, [T]; 0 off the mask.

        Raises TeacherError for a row that was not sampled at temperature 1 from the whole
        vocabulary, and for a response about other tokens; ClientError where there is no response.
        """
        # Before any request: one row that cannot be scored makes the whole batch useless.
        _check_scorable(items)

        async def of_row(item: SAWItem) -> NDArray[np.float32]:
            ids = item.input_ids.tolist()
            pairs = zip(await self._scores(ids, 0), ids[1:], strict=True)
            # Nothing comes before the first token.
            scored = np.array(
                [0.0, *(_of_token(entry, token) for entry, token in pairs)], np.float32
            )
            return np.where(item.action_mask, scored, np.float32(0))

        # All at once: the server batches requests, and the client limits how many are open.
        return await gather_all(map(of_row, items))

    async def top_tokens(self, items: Sequence[SAWItem], k: int) -> Sequence[TopTokens]:
        """The k most likely tokens at each sampled token, in one request per row.

        The probability of all others is 1 less that of these, 1e-6 at least. The server sends k
        tokens for each token of the prompt too, about 80 bytes each. vLLM refuses more than its
        --max-logprobs, 20 unless it is set. Raises as `logprobs`; TeacherError for fewer tokens.
        """
        _check_scorable(items)

        async def top_of_row(item: SAWItem) -> TopTokens:
            ids = item.input_ids.tolist()
            scores = await self._scores(ids, k)
            # Scores begin at the second token, so those of token t are number t - 1.
            tops = [_top(scores[t - 1], ids[t], k) for t in np.flatnonzero(item.action_mask)]
            # Reshaped, because a row without sampled tokens gives an array of one dimension.
            named = np.array([[logprob for _, logprob in top] for top in tops]).reshape(-1, k)
            # float64: where k tokens have nearly all of the probability, the difference is small.
            rest = np.log(np.maximum(1 - np.exp(named).sum(1, keepdims=True), LEAST_REST))
            numbers = np.array([[token for token, _ in top] for top in tops], np.int32)
            return TopTokens(
                ids=numbers.reshape(-1, k),
                logprobs=np.concatenate([named, rest], 1).astype(np.float32),
            )

        return await gather_all(map(top_of_row, items))

    async def _scores(self, ids: list[int], k: int) -> list[Any]:
        """Log-probs after each token but the last, k at least, as the server gives them."""
        # One token has to be sampled; k further log-probs per token of the prompt.
        sampling = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": k}
        body = {"model": await self.model(), "prompt": ids, **sampling}
        choice = first_choice(await self.request("/v1/completions", body))
        scores: list[Any] = required_field(choice, "prompt_logprobs", list)
        if len(scores) != len(ids):
            raise TeacherError(f"the server scored {len(scores)} tokens of a row of {len(ids)}")
        return scores[1:]


def _check_scorable(items: Sequence[SAWItem]) -> None:
    for item in items:
        if item.temperature != 1.0:
            raise TeacherError(
                f"a row was sampled at temperature {item.temperature}, and servers score "
                "prompts at 1 only: sample with temperature=1, or give Trainer(reference=...)"
            )
        if item.sampling_mask is not None:
            raise TeacherError(
                "a row was sampled with top_p, top_k or min_p, and servers score prompts over "
                "the whole vocabulary only: sample without these, or give "
                "Trainer(reference=...)"
            )


def _of_token(entry: Any, token: int) -> float:  # noqa: ANN401 - JSON
    """The log-prob of the token in {"TOKEN ID": {"logprob": ...}, ...}."""
    if not isinstance(entry, dict) or str(token) not in entry:
        raise TeacherError(
            f"the server scored {entry!r} where the row has token {token}; does its model have the "
            "student's tokenizer?"
        )
    number = entry[str(token)].get("logprob")
    if not isinstance(number, int | float) or not np.isfinite(number):
        raise TeacherError(f"the server gives token {token} the log-prob {number!r}")
    return number


def _top(entry: Any, token: int, k: int) -> list[tuple[int, float]]:  # noqa: ANN401 - JSON
    """The k most likely tokens of an entry and their log-probs. Raises TeacherError."""
    # The token of the row is always among the entries, as one more where it is none of the k.
    _of_token(entry, token)
    pairs = [(int(other), _of_token(entry, int(other))) for other in entry]
    top = sorted(pairs, key=lambda pair: -pair[1])[:k]
    # NO_LOGPROB is finite, so `_of_token` lets it pass.
    if len(top) < k or top[-1][1] <= NO_LOGPROB:
        count = sum(logprob > NO_LOGPROB for _, logprob in top)
        raise TeacherError(
            f"the server names {count} tokens where the {k} most likely are needed; set a smaller "
            "k, or start it with a higher --max-logprobs"
        )
    # Not 1 exactly: rounded log-probs of nearly everything may add up to slightly more.
    if math.fsum(math.exp(logprob) for _, logprob in top) > 1 + MOST_EXCESS:
        raise TeacherError(f"the server gives {top} as log-probs, whose probabilities exceed 1")
    return top
