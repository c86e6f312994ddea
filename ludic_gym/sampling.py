"""Sampling parameters: checks, and the seeds of turns and of model calls."""

from __future__ import annotations

import math
from dataclasses import replace

from ludic_gym.errors import ConfigError, PromptTooLong
from ludic_gym.types import Sampling


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


def fitted(sampling: Sampling, prompt_tokens: int, positions: int | None = None) -> Sampling:
    """The sampling with `max_tokens` lowered to the room that a prompt leaves.

    positions: of the model, or of its server; None if they are unknown.
    Raises PromptTooLong for a prompt that leaves no room.

    >>> fitted(Sampling(max_tokens=100, max_length=256), 200).max_tokens
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


# Derived by a hash: seed + index would give neighbouring episodes the seeds of each other's turns.
_MASK = (1 << 64) - 1


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
