"""Batches with log-probs of a teacher, for on-policy distillation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ludic_gym.clients.chat_format import first_choice, needed
from ludic_gym.clients.openai import HttpClient
from ludic_gym.clients.transport import HttpOptions
from ludic_gym.concurrency import gathered
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import TeacherError
from ludic_train.sources.base import BatchSource, DurableSource, Pace
from ludic_train.types import REFERENCE, SAWBatch, SAWItem


class Teacher(Protocol):
    """Source of log-probs of a student's tokens, under another model."""

    async def logprobs(self, items: Sequence[SAWItem]) -> Sequence[NDArray[np.float32]]:
        """Nats of each token of each row given what came before it, [T] per item; 0 off the mask.

        At the row's own temperature, and renormalised over its sampling masks.
        """


class TaughtBatchSource:
    """The batches of another source, with a teacher's log-probs attached as REFERENCE."""

    def __init__(self, source: BatchSource, teacher: Teacher) -> None:
        self.source = source
        self.teacher = teacher

    async def next_batch(self, algo: RLAlgorithm) -> SAWBatch:
        """The next batch of the source, with the teacher's log-probs."""
        batch = await self.source.next_batch(algo)
        scored = await self.teacher.logprobs(batch.items)
        items = [
            replace(item, attachments={**item.attachments, REFERENCE: logprobs})
            for item, logprobs in zip(batch.items, scored, strict=True)
        ]
        return replace(batch, items=tuple(items))

    async def begin(self, pace: Pace) -> None:
        """Start the source, where it is durable."""
        # This class looks durable to a trainer, whatever its source is.
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


COMPLETIONS_ROUTE = "/v1/completions"


class VLLMTeacher(HttpClient):
    """Log-probs of rows from `/v1/completions` of a vLLM server, as `prompt_logprobs`.

    The server's model must have the student's tokenizer: rows are sent as token ids. It computes
    prompts at temperature 1, whatever the request says, so rows must have been sampled at that.
    base_url, model, options, extra_body: as for the chat clients.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str | None = None,
        *,
        api_key_env: str = "VLLM_API_KEY",
        options: HttpOptions | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            base_url, model, api_key_env=api_key_env, options=options, extra_body=extra_body
        )

    async def logprobs(self, items: Sequence[SAWItem]) -> Sequence[NDArray[np.float32]]:
        """Nats of each sampled token of each row given what came before it, [T]; 0 off the mask.

        Raises TeacherError for a row that was not sampled at temperature 1 from the whole
        vocabulary, and for a response about other tokens; ClientError where there is no response.
        """
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
        # All at once: the server batches requests, and the client limits how many are open.
        return await gathered(self._of_row(item) for item in items)

    async def _of_row(self, item: SAWItem) -> NDArray[np.float32]:
        """Log-probs of one row, [T]; raises as `logprobs` does."""
        ids = item.input_ids.tolist()
        # One token has to be sampled; 0 further log-probs per token of the prompt.
        sampling = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        body = {"model": await self.model(), "prompt": ids, **sampling}
        choice = first_choice(await self.request(COMPLETIONS_ROUTE, body))
        scored = _of_tokens(needed(choice, "prompt_logprobs", list), ids)
        return np.where(item.action_mask, scored, np.float32(0))


def _of_tokens(scores: Sequence[Any], ids: Sequence[int]) -> NDArray[np.float32]:
    """One number per token, 0 for the first: nothing came before it."""
    if len(scores) != len(ids):
        raise TeacherError(f"the server scored {len(scores)} tokens of a row of {len(ids)}")
    pairs = zip(scores[1:], ids[1:], strict=True)
    return np.array([0.0, *(_of_token(found, token) for found, token in pairs)], np.float32)


def _of_token(found: Any, token: int) -> float:  # noqa: ANN401 - JSON
    """The log-prob of the token in {"TOKEN ID": {"logprob": ...}, ...}."""
    if not isinstance(found, dict) or str(token) not in found:
        raise TeacherError(
            f"the server scored {found!r} where the row has token {token}; does its model have the "
            "student's tokenizer?"
        )
    number = found[str(token)].get("logprob")
    if not isinstance(number, int | float) or not np.isfinite(number):
        raise TeacherError(f"the server gives token {token} the log-prob {number!r}")
    return number
