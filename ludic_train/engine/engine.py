"""Continuous batching: requests join the batch between decode steps and leave it when they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ludic_gym.types import Completion
from ludic_train.engine.batch import (
    Batch,
    Prefill,
    Request,
    consecutive,
    prefills,
    prefix_prefills,
)
from ludic_train.engine.decoder import Decoder
from ludic_train.engine.exact_decoder import ExactDecoder
from ludic_train.engine.experts import experts_of_prompts, experts_of_rows
from ludic_train.engine.families import causal_lm
from ludic_train.engine.prefix_cache import LEAST, PrefixCache
from ludic_train.engine.prefix_limits import Mark, default_bytes, params_mark
from ludic_train.engine.sampling import Ranking, Scores, choose, scores, uniforms
from ludic_train.errors import EngineError
from ludic_train.models.exact import is_exact
from ludic_train.models.routing import recorded_experts, routers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Key-value memory above this is given back whenever the batch is empty.
KEPT_BYTES = 2**26

Ended = tuple[Request, Completion]


class Engine:
    """Samples many requests at once from the live model; one thread at a time.

    max_positions: longest prompt and completion together, in tokens.
    vocab_size: number of tokens in the vocabulary.

    `add` requests, then `advance` until idle. Equal requests in equal order give equal completions,
    bit for bit, from equal prefixes in the cache; a completion depends on its own prompt, sampling
    and seed, not on the others. An exact model gives equal bits with and without cached prefixes.
    max_batch_size: rows that are decoded together; further requests wait.
    routed_experts: completions of a mixture hold the experts that their tokens went through.
    prefix_cache_bytes: memory for keys and values of earlier texts, which later ones begin with;
        None takes a share of what is free now. There is no cache with
        `routed_experts`, because the experts of a cached token are not known.
    The model may move to another device or type at any time between two calls; the engine follows.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_batch_size: int,
        routed_experts: bool = False,
        prefix_cache_bytes: int | None = 0,
    ) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._max_batch_size = max_batch_size
        self._decoder = ExactDecoder(model) if is_exact(model) else Decoder(model)
        self._routed_experts = routed_experts
        if routed_experts:
            routers(model)
            prefix_cache_bytes = 0
        elif prefix_cache_bytes is None:
            prefix_cache_bytes = default_bytes(self._decoder.device)
        self.prefixes = PrefixCache(prefix_cache_bytes)
        # Mark of the params, once it was needed since the batch was empty.
        self._params: Mark | None = None
        self.max_positions = self._decoder.max_positions
        self.vocab_size = self._decoder.vocab_size
        self._is_stop = np.zeros(self.vocab_size, np.bool_)
        self._is_stop[list(stop_ids(model, tokenizer))] = True
        # Tokens so far, those of requests that were cancelled included.
        self.num_sampled = 0
        # Of the params, since they were changed below requests; 0 before.
        self._version = 0
        self.reset()

    @property
    def is_idle(self) -> bool:
        """True if no request is waiting or in flight."""
        return not self._waiting and not self._batch.requests

    @property
    def cached_keys(self) -> Tensor:
        """Keys of the tokens in flight, [layers, rows, kv_heads, slots, head_dim]."""
        return self._decoder.cache.keys

    def reset(self) -> None:
        """Drop every request, and the memory of all tokens."""
        self.prefixes.clear()
        self._waiting: deque[Request] = deque()
        self._batch = Batch()
        # True if the cache is of params that have changed since.
        self._is_stale = False
        self._decoder.release()

    def add(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.append(request)

    def cancel(self, requests: Collection[Request]) -> None:
        """Drop these requests, waiting or in flight; unknown ones are no error."""
        self._waiting = deque(each for each in self._waiting if each not in requests)
        with torch.inference_mode():
            self._leave([i for i, each in enumerate(self._batch.requests) if each in requests])

    def renew(self, version: int) -> None:
        """Sample all further tokens from the params as they are now.

        version: of these tokens. Rows in flight keep the tokens that they have, and are read anew
        with the next step.
        """
        self._version, self._params = version, None
        self.prefixes.clear()
        self._batch.set_version(version)
        self._is_stale = bool(self._batch.requests)

    def advance(self, interrupted: Callable[[], bool] = lambda: False) -> list[Ended]:
        """Admit waiting requests, then decode until some request ends; those that did.

        Returns nothing if idle, or when `interrupted()` after a step.
        Raises EngineError if the model's logits are not finite.
        """
        with _sampling_mode(self._model):
            ended = self._step()
            while not ended and not self.is_idle and not interrupted():
                ended = self._step()
            if not self._batch.requests and self._decoder.cache.num_bytes > KEPT_BYTES:
                self._decoder.release()
        return ended

    def scores(self, ids: Sequence[int], first: int, ranking: Ranking) -> list[Scores]:
        """As `sampling.scores`, between two steps of the batch."""
        with _sampling_mode(self._model):
            return scores(causal_lm(self._model), ids, first, ranking)

    def _step(self) -> list[Ended]:
        """One token for each waiting request that can join the batch, or else for each row."""
        # A trainer moves the model to its own device, after this engine was made.
        before = self.cached_keys
        self._decoder.follow()
        if self.cached_keys is not before:
            self.prefixes.clear()
        if self._is_stale:
            self._read_anew()
        # Prompts first: a row that joins now shares every later step with the others.
        room = min(self._max_batch_size - len(self._batch), len(self._waiting))
        if room:
            return self._take(self._admit(room))
        return self._take(self._decode()) if self._batch.requests else []

    def _admit(self, room: int) -> Tensor:
        """Let requests join as the last rows of the batch: their logits, [room, V]."""
        admitted = [self._waiting.popleft() for _ in range(room)]
        # Params may have changed since the last request; while some are in flight, they never do.
        if not self._batch.requests:
            self._params = None
        self._drop_old_prefixes(admitted)
        if self._params is None and self._decoder.is_costly:
            self._params = params_mark(self._model)
        self._decoder.refresh(self._params)
        self._decoder.reserve(len(self._batch) + room, max(len(r.prompt_ids) for r in admitted))
        if self.prefixes.max_bytes:
            for prefill in prefix_prefills(admitted, self.prefixes.find):
                self._read(prefill)
        logits = []
        for prefill in prefills(admitted, self.prefixes.find):
            first = len(self._batch)
            with self._recording() as seen:
                logits.append(self._read(prefill))
            joining = [each for sharers in prefill.sharers for each in sharers]
            self._batch.join(joining, self._version)
            self.prefixes.count(sum(map(len, prefill.prompts)), sum(prefill.starts))
            if seen:
                self._note_prompts(prefill, seen, first)
        return torch.cat(logits)

    def _read_anew(self) -> None:
        """Fill the cache of all rows from the params as they are now."""
        self._decoder.refresh()
        texts = self._batch.texts()
        for rows in consecutive(texts):
            self._decoder.prefill([texts[i] for i in rows], [0] * len(rows), rows.start)
        self._is_stale = False

    def _read(self, prefill: Prefill) -> Tensor:
        """Read texts into the rows after the batch, and keep them: logits, [rows, V]."""
        first, cache = len(self._batch), self._decoder.cache
        for row, prefix in enumerate(prefill.prefixes, first):
            cache.put(row, prefix)
        logits = self._decoder.prefill(prefill.prompts, prefill.starts, first)
        for row, prompt in enumerate(prefill.prompts, first):
            self.prefixes.store(prompt, cache, row)
        copies = [max(1, len(sharers)) for sharers in prefill.sharers]
        if sum(copies) == len(copies):
            return logits
        cache.spread(first, copies, max(map(len, prefill.prompts)))
        return logits.repeat_interleave(torch.tensor(copies, device=logits.device), dim=0)

    def _drop_old_prefixes(self, admitted: Sequence[Request]) -> None:
        """Keep prefixes only if they are of the params as they are now, and of their version."""
        longest = max(len(each.prompt_ids) + each.sampling.max_tokens for each in admitted)
        if not self.prefixes.max_bytes or longest < LEAST:
            return
        if self._params is None:
            self._params = params_mark(self._model)
        self.prefixes.renew(self._params, admitted[-1].policy_version)

    def _decode(self) -> Tensor:
        """Read the newest token of each row: logits, [rows, V]."""
        lengths = self._batch.lengths
        self._decoder.reserve(len(lengths), int(lengths.max()) + 1)
        with self._recording() as seen:
            logits = self._decoder.decode(self._batch.newest, lengths)
        if seen:
            experts = experts_of_rows(seen, self._model.config.num_hidden_layers)
            for parts, own in zip(self._batch.experts, experts, strict=True):
                parts.append(own[None])
        return logits

    def _recording(self) -> AbstractContextManager[dict[int, Tensor]]:
        """A context that notes the experts of a forward pass, if completions are to hold them."""
        return recorded_experts(self._model) if self._routed_experts else nullcontext({})

    def _note_prompts(self, prefill: Prefill, seen: dict[int, Tensor], first: int) -> None:
        """Add the experts of prompts to their rows, the first of which is row `first`."""
        experts = experts_of_prompts(seen, self._model.config.num_hidden_layers, prefill.prompts)
        shared = zip(experts, prefill.sharers, strict=True)
        for row, own in enumerate((own for own, sharers in shared for _ in sharers), first):
            self._batch.experts[row].append(own)

    def _take(self, logits: Tensor) -> list[Ended]:
        """Sample a token for each of the last rows, whose logits these are; some rows end."""
        batch, first = self._batch, len(self._batch) - len(logits)
        rows = batch.rows[first:]
        noise = uniforms(rows["key"], rows["count"])
        drawn = choose(logits, rows, noise, self._decoder.kernels)
        ids, logprobs = drawn.ids.cpu().numpy(), drawn.logprobs.cpu().numpy()
        # Nan has no place in a distribution, so the draw would be an arbitrary token.
        if not np.isfinite(logprobs).all():
            raise EngineError("the model's logits are not finite: its params have diverged")
        batch.record(ids, logprobs, drawn.masks)
        self.num_sampled += len(ids)
        for request, token in zip(batch.requests[first:], ids.tolist(), strict=True):
            if request.on_token is not None:
                request.on_token(token)
        may_end = self._is_stop[ids] | (rows["count"] == rows["limit"]) | rows["has_stop_strings"]
        # Only rows that may end are looked at one by one: decoding text costs more than a token.
        ended: dict[int, Ended] = {}
        for i in (first + np.flatnonzero(may_end)).tolist():
            if completion := self._completion(i):
                ended[i] = (batch.requests[i], completion)
        self._leave(list(ended))
        return list(ended.values())

    def _completion(self, i: int) -> Completion | None:
        """The completion of row i if it has ended."""
        batch, ids, sampling = self._batch, self._batch.sampled(i), self._batch.requests[i].sampling
        if self._is_stop[ids[-1]]:
            return batch.completion(i, self._text(ids[:-1]), "stop")
        # The whole text, because a stop string may span tokens.
        text = self._text(ids)
        ends = [text.index(stop) for stop in sampling.stop if stop in text]
        if ends:
            return batch.completion(i, text[: min(ends)], "stop")
        return batch.completion(i, text, "length") if len(ids) == sampling.max_tokens else None

    def _text(self, ids: Sequence[int]) -> str:
        """Text of sampled ids, without special tokens."""
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _leave(self, leaving: Sequence[int]) -> None:
        """Close the gaps that the leaving rows make with the last rows of the batch."""
        if not leaving:
            return
        # Before other rows take their place: the next turn of a dialog begins with these tokens.
        for i in leaving:
            self._keep(i)
        # The cache stays dense and few rows are copied; shifting all later ones would copy most.
        gone, size = set(leaving), len(self._batch) - len(leaving)
        targets = [i for i in leaving if i < size]
        sources = [i for i in range(size, len(self._batch)) if i not in gone]
        if sources:
            num_slots = int(self._batch.lengths[sources].max())
            self._decoder.cache.move(sources, targets, num_slots)
        order = list(range(size))
        for target, source in zip(targets, sources, strict=True):
            order[target] = source
        self._batch.keep(order)

    def _keep(self, i: int) -> None:
        """Keep the text of row i for later ones."""
        request, length = self._batch.requests[i], int(self._batch.lengths[i])
        # Shorter ones are most of the rows of a game, and are not even looked at.
        if length >= LEAST and request.policy_version == self.prefixes.version:
            ids = (*request.prompt_ids, *self._batch.sampled(i))[:length]
            self.prefixes.store(ids, self._decoder.cache, i)


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end a completion: the tokenizer's eos and those of the generation config."""
    made_with = causal_lm(model).generation_config.eos_token_id
    more = made_with if isinstance(made_with, list) else [made_with]
    return frozenset(i for i in (tokenizer.eos_token_id, *more) if i is not None)


@contextmanager
def _sampling_mode(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients inside the block; each module's mode is put back after it."""
    # `model.train()` afterwards would also turn on modules that the trainer keeps in eval mode.
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
