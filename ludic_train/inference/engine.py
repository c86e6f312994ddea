"""Continuous batching: requests join the batch between decode steps and leave it when they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from ludic_gym.types import Completion, FinishReason
from ludic_train.errors import SamplerError
from ludic_train.inference.decoder import Decoder, causal_lm
from ludic_train.inference.requests import Request, Row, prefills
from ludic_train.inference.sampling import choose, uniforms

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Key-value memory above this is given back whenever the batch is empty.
KEPT_BYTES = 2**26

Ended = tuple[Request, Completion]


class _State(NamedTuple):
    """What the device knows of the rows, [rows] each, in the order of the batch.

    newest: the token to read next; lengths: tokens read; counts: tokens sampled.
    """

    newest: Tensor
    lengths: Tensor
    counts: Tensor
    seeds: Tensor
    temperature: Tensor
    top_p: Tensor


class Engine:
    """Samples many requests at once from the live model; one thread at a time.

    `add` requests, then `advance` until idle. Equal requests in equal order give equal completions,
    bit for bit; a completion depends on its own prompt, sampling and seed, not on the others.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, max_batch_size: int
    ) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._max_batch_size = max_batch_size
        self._decoder = Decoder(model)
        self._stop_ids = stop_ids(model, tokenizer)
        self.reset()

    @property
    def max_positions(self) -> int:
        """Longest prompt and completion together, in tokens."""
        return self._decoder.max_positions

    @property
    def is_idle(self) -> bool:
        """Whether no request is waiting or in flight."""
        return not self._waiting and not self._rows

    def reset(self) -> None:
        """Drop every request and what is kept of it."""
        self._waiting: deque[Row] = deque()
        self._rows: list[Row] = []
        self._state = self._new_state([])
        self._decoder.release()

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.append(Row(request))

    def cancel(self, requests: Collection[Request]) -> None:
        """Drop these requests, wherever they are; unknown ones are no error."""
        self._waiting = deque(row for row in self._waiting if row.request not in requests)
        with torch.inference_mode():
            self._leave([i for i, row in enumerate(self._rows) if row.request in requests])

    def advance(self, interrupted: Callable[[], bool] = lambda: False) -> list[Ended]:
        """Admit what waits, then decode until some request ends; returns those that did.

        Returns nothing if idle, or when `interrupted()` after a step.
        Raises SamplerError if the model's logits are not finite.
        """
        with _sampling_mode(self._model):
            ended = self._step()
            while not ended and not self.is_idle and not interrupted():
                ended = self._step()
            if not self._rows and self._decoder.cache.num_bytes > KEPT_BYTES:
                self._decoder.release()
        return ended

    def _step(self) -> list[Ended]:
        """One token for each waiting request that can join the batch, or else for each row."""
        room = min(self._max_batch_size - len(self._rows), len(self._waiting))
        if room:
            return self._admit(room)
        return self._decode() if self._rows else []

    def _admit(self, room: int) -> list[Ended]:
        logits = []
        for prefill in prefills([self._waiting.popleft() for _ in range(room)]):
            first, copies = len(self._rows), [len(sharers) for sharers in prefill.sharers]
            self._decoder.reserve(first + sum(copies), len(prefill.prompts[-1]))
            logits.append(self._decoder.prefill(prefill.prompts, copies, first))
            self._rows += [row for sharers in prefill.sharers for row in sharers]
        return self._sample_first(torch.cat(logits))

    def _sample_first(self, logits: Tensor) -> list[Ended]:
        new = self._new_state(self._rows[-len(logits) :])
        self._state = _State(*map(torch.cat, zip(self._state, new, strict=True)))
        return self._take(logits, first=len(self._rows) - len(logits))

    def _decode(self) -> list[Ended]:
        num_slots = max(row.length for row in self._rows) + 1
        self._decoder.reserve(len(self._rows), num_slots)
        logits = self._decoder.decode(self._state.newest, self._state.lengths, num_slots)
        self._state.lengths.add_(1)
        return self._take(logits, first=0)

    def _take(self, logits: Tensor, first: int) -> list[Ended]:
        """Sample a token for each row from `first` on; those rows that end leave the batch."""
        state = _State(*(column[first:] for column in self._state))
        noise = uniforms(state.seeds, state.counts)
        ids, logprobs = choose(logits, state.temperature, state.top_p, noise)
        if not bool(logprobs.isfinite().all()):
            raise SamplerError("the model's logits are not finite: its params have diverged")
        state.newest.copy_(ids)
        state.counts.add_(1)
        ended: dict[int, Ended] = {}
        for i, (token, logprob) in enumerate(zip(ids.tolist(), logprobs.tolist(), strict=True)):
            row = self._rows[first + i]
            row.ids.append(token)
            row.logprobs.append(logprob)
            completion = self._completion(row)
            if completion:
                ended[first + i] = (row.request, completion)
        self._leave(list(ended))
        return list(ended.values())

    def _completion(self, row: Row) -> Completion | None:
        """The row's completion if it has ended."""
        sampling = row.request.sampling
        if row.ids[-1] in self._stop_ids:
            return self._completed(row, self._text(row.ids[:-1]), "stop")
        if sampling.stop:
            text = self._text(row.ids)
            ends = [text.index(stop) for stop in sampling.stop if stop in text]
            if ends:
                return self._completed(row, text[: min(ends)], "stop")
        if len(row.ids) == sampling.max_tokens:
            return self._completed(row, self._text(row.ids), "length")
        return None

    def _completed(self, row: Row, text: str, reason: FinishReason) -> Completion:
        return Completion(
            text=text,
            finish_reason=reason,
            sampling=row.request.sampling,
            prompt_ids=row.request.prompt_ids,
            completion_ids=tuple(row.ids),
            logprobs=tuple(row.logprobs),
            policy_version=row.request.policy_version,
        )

    def _text(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _leave(self, leaving: Sequence[int]) -> None:
        """Close the gaps that the leaving rows make with the last rows of the batch."""
        if not leaving:
            return
        gone, size = set(leaving), len(self._rows) - len(leaving)
        targets = [i for i in leaving if i < size]
        sources = [i for i in range(size, len(self._rows)) if i not in gone]
        if sources:
            num_slots = max(self._rows[i].length for i in sources)
            self._decoder.cache.move(sources, targets, num_slots)
        order = list(range(size))
        for target, source in zip(targets, sources, strict=True):
            order[target] = source
        kept = torch.tensor(order, dtype=torch.int64, device=self._decoder.device)
        self._rows = [self._rows[i] for i in order]
        self._state = _State(*(column[kept] for column in self._state))

    def _new_state(self, rows: Sequence[Row]) -> _State:
        samplings = [row.request.sampling for row in rows]
        columns: list[list[int]] = [
            [0] * len(rows),
            [len(row.request.prompt_ids) for row in rows],
            [0] * len(rows),
            [_signed(sampling.seed or 0) for sampling in samplings],
        ]
        whole = torch.tensor(columns, dtype=torch.int64, device=self._decoder.device)
        real = torch.tensor(
            [[s.temperature for s in samplings], [s.top_p for s in samplings]],
            device=self._decoder.device,
        )
        return _State(*whole.unbind(), *real.unbind())


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens that end a completion: the tokenizer's eos and those the model is made with."""
    made_with = causal_lm(model).generation_config.eos_token_id
    more = made_with if isinstance(made_with, list) else [made_with]
    return frozenset(i for i in (tokenizer.eos_token_id, *more) if i is not None)


def _signed(seed: int) -> int:
    """The low 64 bits of any integer, as a signed one."""
    return (seed + 2**63) % 2**64 - 2**63


@contextmanager
def _sampling_mode(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients inside the block; each module's mode is put back after it."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
