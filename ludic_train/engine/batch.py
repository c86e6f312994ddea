"""Requests for completions: how they are read together, and the batch that they are sampled in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ludic_gym.sampling import packed_masks
from ludic_gym.types import Completion, FinishReason, Sampling
from ludic_train.engine.prefix_cache import LEAST, Ids, Prefix, length_of, shared_prefixes
from ludic_train.engine.sampling import DRAW, draws_of, noise_keys
from ludic_train.expert_text import experts_to_base64

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

# Tokens that one prefill may hold: more would not fit the caches of a CPU.
PREFILL_TOKENS = 1024
# Padding of queries that is cheaper than one more forward pass, in tokens and as a share.
FREE_PADDING = 256
MAX_PADDING = 0.2

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
    on_token: called with each token at once, in the thread of the engine.
    """

    prompt_ids: Ids
    sampling: Sampling
    policy_version: int | None = None
    on_token: Callable[[int], None] | None = None


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
        self.experts: list[list[NDArray[np.int16]]] = []

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
        for kept, mask in zip(self.masks[first:], masks, strict=True):
            if mask is not None:
                kept.append(mask)

    def _make_room(self, first: int) -> None:
        """Have space for one more token in each row from `first` on."""
        if self.rows["count"][first:].max(initial=0) < self.ids.shape[1]:
            return
        # Doubled, so that a long completion costs few copies.
        self.ids = np.concatenate((self.ids, np.zeros_like(self.ids)), axis=1)
        self.logprobs = np.concatenate((self.logprobs, np.zeros_like(self.logprobs)), axis=1)
        latest = np.broadcast_to(self.versions[:, -1:], self.versions.shape)
        self.versions = np.concatenate((self.versions, latest), axis=1)

    def keep(self, order: Sequence[int]) -> None:
        """Make row `order[i]` the new row i; drop the others."""
        kept = np.array(order, np.int64)
        self.requests = [self.requests[i] for i in order]
        self.masks = [self.masks[i] for i in order]
        self.experts = [self.experts[i] for i in order]
        self.rows, self.ids, self.logprobs = self.rows[kept], self.ids[kept], self.logprobs[kept]
        self.versions = self.versions[kept]

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
    yield from _passes(sharers, find)


def prefix_prefills(
    requests: Iterable[Request], find: Callable[[Ids], Prefix]
) -> Iterator[Prefill]:
    """Forward passes over what the prompts have in common, to be kept before `prefills`."""
    for level in shared_prefixes(request.prompt_ids for request in requests):
        # The rest of those that are cached already is short: each prompt reads it itself.
        missing = [text for text in level if len(text) - length_of(find(text)) >= LEAST]
        yield from _passes(dict.fromkeys(missing, ()), find)


def _passes(
    sharers: Mapping[Ids, Sequence[Request]], find: Callable[[Ids], Prefix]
) -> Iterator[Prefill]:
    """Forward passes over these texts."""
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
        if bucket and not _fits(len(bucket), total, size):
            yield bucket
            bucket, total = [], 0
        bucket.append(text)
        total += size
    if bucket:
        yield bucket


def _fits(num_texts: int, total: int, size: int) -> bool:
    """True if one more text wastes less on padding than a forward pass of its own costs.

    total: size of the texts so far.
    """
    padded = size * (num_texts + 1)
    padding = padded - total - size
    is_small = total + size <= PREFILL_TOKENS
    return is_small and padding <= max(FREE_PADDING, MAX_PADDING * padded)
