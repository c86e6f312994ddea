"""Continuous batching: requests join the batch between decode steps and leave it when they end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludic_gym.sampling import packed_masks
from ludic_gym.types import Completion, FinishReason, Sampling
from ludic_train.engine.cache import (
    LEAST,
    Ids,
    KVCache,
    Prefix,
    PrefixCache,
    common_prefix,
    length_of,
    params_mark,
)
from ludic_train.engine.decoder import FAMILIES, Decoder, causal_lm, is_known
from ludic_train.engine.exact import ExactDecoder
from ludic_train.engine.sampling import (
    DRAW,
    choose,
    draws_of,
    noise_keys,
    uniforms,
)
from ludic_train.errors import EngineError, UnsupportedModel
from ludic_train.expert_text import UNKNOWN, experts_to_base64
from ludic_train.models.chat_profile import chat_profile
from ludic_train.models.exact import is_exact
from ludic_train.models.modules import limit_vocabulary, vocabulary_of
from ludic_train.models.routing import recorded_experts, routers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ludic_train.engine.any_model import AnyDecoder, TextDecoder

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Experts = NDArray[np.int16]

# Tokens that one prefill may hold: more would not fit the caches of a CPU.
PREFILL_TOKENS = 1024
# Padding of queries that is cheaper than one more forward pass, in tokens and as a share.
FREE_PADDING = 256
MAX_PADDING = 0.2
# Key-value memory above this is given back whenever the batch is empty.
KEPT_BYTES = 2**26

# A table of numbers and no list of objects: a step touches every row, many times a second.
ROW = np.dtype(
    [
        ("prompt_size", np.int64),
        ("count", np.int64),
        ("limit", np.int64),
        ("key", np.uint64),
        *DRAW,
        ("has_stop_strings", np.bool_),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """A completion to sample; `sampling.seed` is set. A request equals only itself.

    prompt_ids: at least one. policy_version: update of the params that it is sampled from.
    """

    prompt_ids: Ids
    sampling: Sampling
    policy_version: int | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompts to read in one forward pass, and for each the requests that share it.

    prompts: with about as much left to read. prefixes: parts of the cached
        beginning of each, none where it is read from its first token on.
    sharers: per prompt, at least one; none for a prefix that is read for later prompts.
    """

    prompts: tuple[Ids, ...]
    prefixes: tuple[Prefix, ...]
    sharers: tuple[tuple[Request, ...], ...]

    @property
    def starts(self) -> list[int]:
        """The first token of each prompt that is to be read."""
        return [length_of(prefix) for prefix in self.prefixes]


class Batch:
    """Rows in flight, in the order of the key-value cache.

    requests: of each row.
    rows: its numbers, [rows] of ROW: tokens of the prompt, sampled, and to sample at most; the key
        of its noise; its sampling parameters.
    ids, logprobs: the sampled tokens, [rows, at least the greatest count].
    versions: of the params that each token is sampled from, in the shape of `ids`.
    masks: of each row, the ids that each of its tokens was drawn from; none where all were.
    experts: of each row, those that its tokens went through, in parts [tokens, layers, k]; no parts
        unless they are recorded.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.rows = np.zeros(0, ROW)
        self.ids: Ints = np.zeros((0, 8), np.int64)
        self.logprobs: Floats = np.zeros((0, 8), np.float32)
        self.versions: Ints = np.zeros((0, 8), np.int64)
        self.masks: list[list[Ints]] = []
        self.experts: list[list[Experts]] = []

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def lengths(self) -> Ints:
        """Tokens in the key-value cache: all but the newest, which the next step reads."""
        return np.asarray(self.rows["prompt_size"] + self.rows["count"] - 1, np.int64)

    @property
    def newest(self) -> Ints:
        """The last sampled token of each row."""
        return np.asarray(self.ids[np.arange(len(self)), self.rows["count"] - 1], np.int64)

    def join(self, requests: Sequence[Request], version: int = 0) -> None:
        """Add rows, with nothing sampled yet. version: the least that their tokens can have."""
        keys = noise_keys([request.sampling.seed or 0 for request in requests])
        draws = draws_of(request.sampling for request in requests)
        facts = [
            (len(r.prompt_ids), 0, r.sampling.max_tokens, key, *draw, bool(r.sampling.stop))
            for r, draw, key in zip(requests, draws.tolist(), keys, strict=True)
        ]
        new = np.array(facts, ROW)
        self.requests += requests
        self.masks += [[] for _ in requests]
        self.experts += [[] for _ in requests]
        self.rows = np.concatenate((self.rows, new))
        space = (len(new), self.ids.shape[1])
        self.ids = np.concatenate((self.ids, np.zeros(space, np.int64)))
        self.logprobs = np.concatenate((self.logprobs, np.zeros(space, np.float32)))
        # A request that waited may be older than the params.
        versions = np.array([max(r.policy_version or 0, version) for r in requests], np.int64)
        self.versions = np.concatenate((self.versions, np.broadcast_to(versions[:, None], space)))

    def set_version(self, version: int) -> None:
        """Give this version to all tokens from now on."""
        # A row without room has no column for its next version.
        self._make_room(0)
        later = np.arange(self.versions.shape[1]) >= self.rows["count"][:, None]
        self.versions = np.where(later, version, self.versions)

    def texts(self) -> list[Ids]:
        """Tokens of each row that are in the key-value cache."""
        return [
            (*request.prompt_ids, *self.sampled(i)[:-1]) for i, request in enumerate(self.requests)
        ]

    def record(self, ids: Ints, logprobs: Floats, masks: Sequence[Ints | None]) -> None:
        """Add a sampled token to each of the last `len(ids)` rows; masks: as in `Drawn`."""
        first = len(self) - len(ids)
        counts = self.rows["count"][first:]
        self._make_room(first)
        places = np.arange(first, len(self)), counts
        self.ids[places], self.logprobs[places] = ids, logprobs
        counts += 1
        for row_masks, mask in zip(self.masks[first:], masks, strict=True):
            if mask is not None:
                row_masks.append(mask)

    def add_experts(self, experts: Sequence[Experts], first: int = 0) -> None:
        """Add experts of tokens, [tokens, layers, k], to the rows from `first` on."""
        for parts, part in zip(self.experts[first:], experts, strict=True):
            parts.append(part)

    def _make_room(self, first: int) -> None:
        if self.rows["count"][first:].max(initial=0) < self.ids.shape[1]:
            return
        # Doubled, so that a long completion costs few copies.
        self.ids = np.concatenate((self.ids, np.zeros_like(self.ids)), axis=1)
        self.logprobs = np.concatenate((self.logprobs, np.zeros_like(self.logprobs)), axis=1)
        latest = np.broadcast_to(self.versions[:, -1:], self.versions.shape)
        self.versions = np.concatenate((self.versions, latest), axis=1)

    def keep(self, order: Sequence[int]) -> None:
        """Make row `order[i]` the new row i; drop the others."""
        at = np.array(order, np.int64)
        self.requests = [self.requests[i] for i in order]
        self.masks = [self.masks[i] for i in order]
        self.experts = [self.experts[i] for i in order]
        self.rows, self.ids, self.logprobs = (
            self.rows[at],
            self.ids[at],
            self.logprobs[at],
        )
        self.versions = self.versions[at]

    def sampled(self, i: int) -> list[int]:
        """All tokens sampled for row i."""
        return list(map(int, self.ids[i, : self.rows["count"][i]]))

    def completion(self, i: int, text: str, reason: FinishReason) -> Completion:
        """The completion of row i, which has ended."""
        request, ids, masks = self.requests[i], self.sampled(i), self.masks[i]
        parts, versions = self.experts[i], self.versions[i, : self.rows["count"][i]].tolist()
        # Usually the params stay the same, and one number says it all.
        is_mixed = request.policy_version is not None and {*versions} != {request.policy_version}
        return Completion(
            text=text,
            finish_reason=reason,
            sampling=request.sampling,
            prompt_ids=request.prompt_ids,
            completion_ids=tuple(ids),
            logprobs=tuple(self.logprobs[i, : self.rows["count"][i]].tolist()),
            sampling_mask=packed_masks(masks, ids) if masks else None,
            policy_version=min(versions) if is_mixed else request.policy_version,
            versions=tuple(versions) if is_mixed else None,
            routed_experts=experts_to_base64(np.concatenate(parts)) if parts else None,
        )


Ended = tuple[Request, Completion]


class Engine:
    """Samples many requests at once from the live model; one thread at a time.

    max_positions: longest prompt and completion together, in tokens.
    vocab_size: ids that the tokenizer has; further rows of a padded vocabulary are not sampled.

    `add` requests, then `advance` until idle. Equal requests in equal order give equal completions,
    bit for bit, from equal prefixes in the cache; a completion depends on its own prompt, sampling
    and seed, not on the others. An exact model gives equal bits with and without cached prefixes.
    max_batch_size: rows that are decoded together; further requests wait.
    routed_experts: completions of a mixture hold the experts that their tokens went through.
    prefix_cache_bytes: memory for keys and values of earlier texts, which later ones begin with.
        There is no cache with `routed_experts`: the experts of a cached token are not known; nor
        for models that `AnyDecoder` runs.
    The model may move to another device or type at any time between two calls; the engine follows.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_batch_size: int,
        routed_experts: bool = False,
        prefix_cache_bytes: int = 0,
    ) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._max_batch_size = max_batch_size
        with _sampling_mode(model):
            self._decoder = _decoder_of(model)
        keeps = isinstance(self._decoder.cache, KVCache)
        self._routed_experts = routed_experts
        if routed_experts:
            routers(model)
            if not keeps:
                raise UnsupportedModel(
                    f"the local engine records experts of {', '.join(FAMILIES)} models, and not of "
                    f"{causal_lm(model).config.model_type!r}: turn router replay off"
                )
        self.prefixes = PrefixCache(prefix_cache_bytes if keeps and not routed_experts else 0)
        # Mark of the params, once it was needed since the batch was empty.
        self._params: tuple[object, ...] | None = None
        self.max_positions = self._decoder.max_positions
        # A prompt with an id that the model lacks is refused by itself.
        size = min(chat_profile(tokenizer).vocab_size, self._decoder.vocab_size)
        limit_vocabulary(model, size)
        self.vocab_size = vocabulary_of(model)
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
        """Keys of the tokens in flight, [layers, rows, kv_heads, slots, head_dim].

        Empty where transformers keeps them; of the type and device of the model there, too.
        """
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

    def _step(self) -> list[Ended]:
        """One token for each waiting request that can join the batch, or else for each row."""
        # A trainer moves the model to its own device, after this engine was made.
        if self._decoder.follow():
            self.prefixes.clear()
            self._is_stale = bool(self._batch.requests)
        if self._is_stale:
            self._decoder.refresh()
            texts = self._batch.texts()
            self._decoder.reserve(len(texts), max(map(len, texts)))
            for rows in consecutive(texts):
                self._decoder.prefill([texts[i] for i in rows], [0] * len(rows), rows.start)
            self._is_stale = False
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
        self._decoder.refresh()
        self._decoder.reserve(len(self._batch) + room, max(len(r.prompt_ids) for r in admitted))
        self._read_common_prefix(admitted)
        logits = []
        for prefill in prefills(admitted, self.prefixes.find):
            first = len(self._batch)
            with self._recording() as seen:
                logits.append(self._read(prefill))
            joining = [each for sharers in prefill.sharers for each in sharers]
            self._batch.join(joining, self._version)
            self.prefixes.count(sum(map(len, prefill.prompts)), sum(prefill.starts))
            if seen:
                sizes = list(map(len, prefill.prompts))
                experts = experts_of(seen, self._model.config.num_hidden_layers, sizes)
                shared = zip(experts, prefill.sharers, strict=True)
                self._batch.add_experts([e for e, sharers in shared for _ in sharers], first)
        return torch.cat(logits)

    def _read_common_prefix(self, admitted: Sequence[Request]) -> None:
        prompts = {request.prompt_ids for request in admitted}
        if not self.prefixes.max_bytes or len(prompts) < 2:
            return
        prefix = common_prefix(prompts)
        cached = self.prefixes.find(prefix)
        if len(prefix) - length_of(cached) >= LEAST:
            self._read(Prefill((prefix,), (cached,), ((),)))

    def _read(self, prefill: Prefill) -> Tensor:
        """Read texts into the rows after the batch, and keep them: logits, [rows, V]."""
        first, cache = len(self._batch), self._decoder.cache
        if isinstance(cache, KVCache):
            for row, prefix in enumerate(prefill.prefixes, first):
                cache.put(row, prefix)
        logits = self._decoder.prefill(prefill.prompts, prefill.starts, first)
        if isinstance(cache, KVCache):
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
        lengths = self._batch.lengths
        self._decoder.reserve(len(lengths), int(lengths.max()) + 1)
        with self._recording() as seen:
            logits = self._decoder.decode(self._batch.newest, lengths)
        if seen:
            num_layers = self._model.config.num_hidden_layers
            self._batch.add_experts(experts_of(seen, num_layers, [1] * len(lengths)))
        return logits

    def _recording(self) -> AbstractContextManager[dict[int, Tensor]]:
        """A context that notes the experts of a forward pass, if completions are to hold them."""
        return recorded_experts(self._model) if self._routed_experts else nullcontext({})

    def _take(self, logits: Tensor) -> list[Ended]:
        """Sample a token for each of the last rows, whose logits these are; some rows end."""
        batch, first = self._batch, len(self._batch) - len(logits)
        rows = batch.rows[first:]
        noise = uniforms(rows["key"], rows["count"])
        # Rows of a padded vocabulary are no tokens.
        drawn = choose(logits[:, : self.vocab_size], rows, noise)
        ids, logprobs = drawn.ids.cpu().numpy(), drawn.logprobs.cpu().numpy()
        # Nan has no place in a distribution, so the draw would be an arbitrary token.
        if not np.isfinite(logprobs).all():
            raise EngineError("the model's logits are not finite: its params have diverged")
        batch.record(ids, logprobs, drawn.masks)
        self.num_sampled += len(ids)
        may_end = self._is_stop[ids] | (rows["count"] == rows["limit"]) | rows["has_stop_strings"]
        # Only rows that may end are looked at one by one: decoding text costs more than a token.
        ended: dict[int, Ended] = {}
        for i in (first + np.flatnonzero(may_end)).tolist():
            if completion := self._completion(i):
                ended[i] = (batch.requests[i], completion)
        self._leave(list(ended))
        return list(ended.values())

    def _completion(self, i: int) -> Completion | None:
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
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _leave(self, leaving: Sequence[int]) -> None:
        """Close the gaps that the leaving rows make with the last rows of the batch."""
        if not leaving:
            return
        # Before other rows take their place: the next turn of a dialog begins with these tokens.
        cache = self._decoder.cache
        for i in leaving:
            request, length = self._batch.requests[i], int(self._batch.lengths[i])
            # Shorter ones are most of the rows of a game, and are not even looked at.
            is_long = length >= LEAST and request.policy_version == self.prefixes.version
            if is_long and isinstance(cache, KVCache):
                ids = (*request.prompt_ids, *self._batch.sampled(i))[:length]
                self.prefixes.store(ids, cache, i)
        # The cache stays dense and few rows are copied; shifting all later ones would copy most.
        gone, size = set(leaving), len(self._batch) - len(leaving)
        targets = [i for i in leaving if i < size]
        sources = [i for i in range(size, len(self._batch)) if i not in gone]
        if sources:
            num_slots = int(self._batch.lengths[sources].max())
            cache.move(sources, targets, num_slots)
        order = list(range(size))
        for target, source in zip(targets, sources, strict=True):
            order[target] = source
        self._batch.keep(order)


def consecutive(texts: Sequence[Ids]) -> Iterator[range]:
    """Runs of texts that can be read in one forward pass."""
    start = longest = 0
    for i, text in enumerate(texts):
        longest = max(longest, len(text))
        if i > start and longest * (i + 1 - start) > PREFILL_TOKENS:
            yield range(start, i)
            start, longest = i, len(text)
    if texts:
        yield range(start, len(texts))


def prefills(
    requests: Iterable[Request], find: Callable[[Ids], Prefix] = lambda ids: ()
) -> Iterator[Prefill]:
    """Forward passes over the prompts: equal ones are read once, those of similar length together.

    Members of a group share their prompt, so this saves most of the reading in training.
    find: the cached beginning of a prompt, which is not read.
    """
    sharers: dict[Ids, list[Request]] = {}
    for request in requests:
        sharers.setdefault(request.prompt_ids, []).append(request)
    prefixes = {text: find(text) for text in sharers}
    # Apart from those with a prefix, because causal attention within a text costs less.
    for is_cached in (False, True):
        sizes = [
            (len(text) - length_of(prefix), text)
            for text, prefix in prefixes.items()
            if bool(prefix) == is_cached
        ]
        for texts in _buckets(sizes):
            yield Prefill(
                tuple(texts),
                tuple(prefixes[text] for text in texts),
                tuple(tuple(sharers[text]) for text in texts),
            )


def _buckets(texts: Iterable[tuple[int, Ids]]) -> Iterator[list[Ids]]:
    """Texts, given with their sizes, in buckets of similar size that waste little on padding."""
    bucket: list[Ids] = []
    total = 0
    # Sorted, so that neighbours differ least in size and need least padding.
    for size, text in sorted(texts, key=itemgetter(0)):
        padded = size * (len(bucket) + 1)
        is_small = total + size <= PREFILL_TOKENS
        wastes_little = padded - total - size <= max(FREE_PADDING, MAX_PADDING * padded)
        if bucket and not (is_small and wastes_little):
            yield bucket
            bucket, total = [], 0
        bucket.append(text)
        total += size
    if bucket:
        yield bucket


def experts_of(seen: Mapping[int, Tensor], num_layers: int, sizes: Sequence[int]) -> list[Experts]:
    """Experts of each text's tokens, [tokens, layers, k]; -1 in layers without experts.

    seen: [tokens of all texts, k] by the number of the layer; of the last layer [texts, k], since
        the decoder computes it for last tokens alone. The others are -1 there: nothing follows
        from them. sizes: tokens of each text.
    """
    ends, some = np.cumsum(sizes), next(iter(seen.values()))
    experts = np.full((ends[-1], num_layers, some.shape[1]), UNKNOWN, np.int16)
    for layer, chosen in seen.items():
        where = ends - 1 if layer == num_layers - 1 else slice(None)
        experts[where, layer] = chosen.cpu().numpy()
    return np.split(experts, ends[:-1])


def _decoder_of(model: PreTrainedModel) -> Decoder | ExactDecoder | AnyDecoder | TextDecoder:
    """The fastest decoder that computes the model exactly."""
    if is_exact(model):
        return ExactDecoder(model)
    if is_known(causal_lm(model).config):
        return Decoder(model)
    from ludic_train.engine.any_model import any_decoder

    return any_decoder(model)


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end a completion: those of the chat profile and of the generation config."""
    made_with = causal_lm(model).generation_config.eos_token_id
    more = made_with if isinstance(made_with, list) else [made_with]
    return frozenset(i for i in (*chat_profile(tokenizer).stop_ids, *more) if i is not None)


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
