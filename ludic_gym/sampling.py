"""Sampling parameters: checks, seeds of turns and calls, and masks of the tokens left to draw.

top_p, top_k and min_p leave some tokens of the vocabulary to draw from. A trainer renormalises its
own probabilities over the same tokens, so that ratios to the sampler's are of one distribution
("Keep Sampling Mask" in DeepSeek-V3.2, arXiv:2512.02556).

For each sampled token, the bytes of a mask hold the other tokens of its mask in ascending order:
the distance of each id to the one before (the first to -1) in LEB128, and a 0 at the end. The drawn
token itself is known and left out, so that a mask of one token is one byte. The bytes of several
completions, one after the other, are those of all their tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ludic_gym.errors import ConfigError, DataError, PromptTooLong
from ludic_gym.types import Sampling

# Derived by a hash: seed + index would give neighbouring episodes the seeds of each other's turns.
_MASK = (1 << 64) - 1
MASK_REMEDY = (
    "sample by the local engine, or by VLLMTokenClient from a vLLM on a GPU that was started with "
    "--return-sampling-mask, as `ludic serve --sampling-mask` does"
)
Ints = NDArray[np.int64]
# LEB128 has 7 bits in a byte: five bytes hold any int32.
BITS, MOST_BYTES = 7, 5


def check_sampling(sampling: Sampling) -> None:
    """Raise ConfigError for parameters that no completion can be sampled with."""
    # Ranges, not their negations: every comparison with nan is False, so that nan is rejected too.
    if not 0 <= sampling.temperature < math.inf:
        raise ConfigError(f"temperature={sampling.temperature} must be 0 (greedy) or more")
    if not 0 < sampling.top_p <= 1:
        raise ConfigError(f"top_p={sampling.top_p} must be above 0 and at most 1")
    if not 0 <= sampling.min_p <= 1:
        raise ConfigError(f"min_p={sampling.min_p} must be from 0 (off) to 1")
    if sampling.top_k < 0:
        raise ConfigError(f"top_k={sampling.top_k} must be 0 (off) or more")
    if sampling.max_tokens < 1:
        raise ConfigError(f"max_tokens={sampling.max_tokens} must be at least 1")
    if sampling.max_length is not None and sampling.max_length < 2:
        raise ConfigError(
            f"max_length={sampling.max_length} must be at least 2: a token of a prompt, and one of "
            "its completion"
        )
    if "" in sampling.stop:
        raise ConfigError(f"stop={sampling.stop!r} has an empty string, which every text contains")


def leaves_out_tokens(sampling: Sampling) -> bool:
    """True if top_p, top_k or min_p keep some tokens from being sampled; never for greedy sampling.

    >>> leaves_out_tokens(Sampling(top_k=50)), leaves_out_tokens(Sampling())
    (True, False)
    """
    is_cut = sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
    return is_cut and sampling.temperature > 0


def fit_max_tokens(
    sampling: Sampling, prompt_tokens: int, positions: int | None = None
) -> Sampling:
    """The sampling with `max_tokens` lowered to the room that a prompt leaves.

    positions: of the model, or of its server; None if they are unknown.
    Raises PromptTooLong for a prompt that leaves no room.

    >>> fit_max_tokens(Sampling(max_tokens=100, max_length=256), 200).max_tokens
    56
    """
    limits = [limit for limit in (sampling.max_length, positions) if limit is not None]
    if not limits or prompt_tokens + sampling.max_tokens <= min(limits):
        return sampling
    if prompt_tokens >= min(limits):
        raise PromptTooLong(
            f"a prompt of {prompt_tokens} tokens leaves no room for a completion: prompt and "
            f"completion together have at most {min(limits)} tokens, by max_length="
            f"{sampling.max_length} and the maximum context length of the model, "
            f"{'unknown' if positions is None else positions}"
        )
    return replace(sampling, max_tokens=min(limits) - prompt_tokens)


def derived_seed(seed: int, index: int) -> int:
    """The `index`-th output of the SplitMix64 generator that starts at `seed`, as 63 bits.

    Steele, Lea and Flood 2014, doi:10.1145/2714064.2660195.

    >>> derived_seed(0, 0) == 0xE220A8397B1DCDAF >> 1
    True
    """
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1


def turn_sampling(sampling: Sampling, turn: int) -> Sampling:
    """The sampling of one turn, with a seed derived from the episode's and the turn's number.

    Without a seed it stays the same: every completion is then a new draw.

    >>> turn_sampling(Sampling(seed=1), 0) == turn_sampling(Sampling(seed=1), 1)
    False
    """
    if sampling.seed is None:
        return sampling
    # Field by field, because `replace` takes three times as long, and every turn comes here.
    return Sampling(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        max_tokens=sampling.max_tokens,
        stop=sampling.stop,
        seed=derived_seed(sampling.seed, turn),
        max_length=sampling.max_length,
    )


def call_sampling(sampling: Sampling, index: int) -> Sampling:
    """The sampling of a turn's `index`-th model call, from the second on with a derived seed."""
    return sampling if index == 0 else turn_sampling(sampling, index)


def packed_masks(masks: Sequence[ArrayLike], drawn: Sequence[int]) -> bytes:
    r"""The masks of sampled tokens as bytes.

    masks: for each sampled token the ids that it was drawn from, itself included, in any order.
    drawn: the sampled tokens.
    Raises DataError where a mask lacks its token, has an id twice, or is missing.

    >>> packed_masks([[7, 2, 9], [4]], [7, 4])
    b'\x03\x07\x00\x00'
    """
    if len(masks) != len(drawn):
        raise DataError(f"{len(masks)} sampling masks for {len(drawn)} tokens")
    if not masks:
        return b""
    sets = [np.asarray(mask, np.int64).reshape(-1) for mask in masks]
    sizes = np.array([len(each) for each in sets])
    ids, position = np.concatenate(sets), np.repeat(np.arange(len(sets)), sizes)
    order = np.lexsort((ids, position))
    ids = ids[order]
    taken = ids == np.asarray(drawn, np.int64)[position]
    if (is_wrong := np.bincount(position[taken], minlength=len(sets)) != 1).any():
        k = int(is_wrong.argmax())
        raise DataError(f"token {drawn[k]} must be once in its sampling mask, {sets[k][:20]}")
    ids, position = ids[~taken], position[~taken]
    is_first = np.diff(position, prepend=-1) != 0
    # Gaps take fewer bytes than ids, and are at least 1, so that 0 can end a mask.
    gaps = np.where(is_first, ids + 1, np.diff(ids, prepend=0))
    if len(gaps) and gaps.min() < 1:
        raise DataError("a sampling mask has an id twice, or a negative one")
    return _leb128(np.insert(gaps, np.cumsum(sizes - 1), 0))


def unpacked_masks(packed: bytes, drawn: NDArray[np.integer]) -> tuple[Ints, Ints]:
    r"""Number of tokens in each mask, [M], and the ids of all masks, [K]; the drawn token is last.

    packed: as `packed_masks` made them. drawn: the M sampled tokens.
    Raises DataError for bytes that are no masks of M tokens; they may come from any program.

    >>> sizes, ids = unpacked_masks(b"\x03\x07\x00\x00", np.array([7, 4]))
    >>> sizes.tolist(), ids.tolist()
    ([3, 1], [2, 9, 7, 4])
    """
    numbers = _from_leb128(packed)
    ends = np.flatnonzero(numbers == 0)
    if len(ends) != len(drawn) or (len(numbers) and numbers[-1] != 0):
        raise DataError(f"{len(ends)} sampling masks for {len(drawn)} tokens")
    if not len(ends):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    sizes = np.diff(ends, prepend=-1)
    total = numbers.cumsum()
    ids = total - np.repeat(np.append(0, total[ends[:-1]]), sizes) - 1
    # The place of the mark that ends a mask is that of the drawn token.
    ids[ends] = drawn
    if ids.max() >= 2**31 or (ids == np.repeat(drawn, sizes)).sum() != len(drawn):
        raise DataError("a sampling mask has its drawn token twice, or an id beyond 2**31")
    return sizes, ids


def _leb128(numbers: Ints) -> bytes:
    """The numbers, 0 to 2**31, seven bits a byte, lowest first; 128 is added before a last byte."""
    limits = [1 << BITS * n for n in range(1, MOST_BYTES)]
    size = np.searchsorted(limits, numbers, side="right") + 1
    place = np.arange(MOST_BYTES)
    digits = (numbers[:, None] >> BITS * place) & 127 | (place < size[:, None] - 1) * 128
    return digits[place < size[:, None]].astype(np.uint8).tobytes()


def _from_leb128(packed: bytes) -> Ints:
    """The numbers of the bytes. Raises DataError for bytes that `_leb128` does not make."""
    octets = np.frombuffer(packed, np.uint8)
    if not len(octets):
        return np.zeros(0, np.int64)
    ends = np.flatnonzero(octets < 128)
    starts = np.append(0, ends[:-1] + 1)
    # The last check: a number with leading zeros would be a second form of it.
    if (
        not len(ends)
        or ends[-1] != len(octets) - 1
        or (ends - starts).max() >= MOST_BYTES
        or (octets[ends][ends > starts] == 0).any()
    ):
        raise DataError(f"{len(octets)} bytes are no sampling masks")
    place = np.arange(len(octets)) - np.repeat(starts, ends - starts + 1)
    return np.add.reduceat((octets & 127).astype(np.int64) << BITS * place, starts)
