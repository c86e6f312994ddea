"""What the engine is asked for, and how waiting prompts are put together for reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ludic_gym.types import Sampling

# Padded tokens that one prefill may hold: more would not fit the caches of a CPU.
PREFILL_TOKENS = 1024
# Padding that is cheaper than one more forward pass, in tokens and as a share of the prefill.
FREE_PADDING = 128
MAX_PADDING = 0.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request:
    """One completion to sample; `sampling.seed` is given. A request equals only itself."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    policy_version: int | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """Prompts to read in one forward pass, and for each the requests that share it."""

    prompts: tuple[tuple[int, ...], ...]
    sharers: tuple[tuple[Request, ...], ...]


def prefills(requests: Iterable[Request]) -> Iterator[Prefill]:
    """Groups equal prompts, and puts those of similar length into one forward pass."""
    sharers: dict[tuple[int, ...], list[Request]] = {}
    for request in requests:
        sharers.setdefault(request.prompt_ids, []).append(request)
    for prompts in _buckets(sorted(sharers, key=len)):
        yield Prefill(tuple(prompts), tuple(tuple(sharers[prompt]) for prompt in prompts))


def _buckets(prompts: Iterable[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
    """Cuts prompts, sorted by length, where a longer one would waste too much on padding."""
    bucket: list[tuple[int, ...]] = []
    for prompt in prompts:
        if bucket and not _fits(bucket, prompt):
            yield bucket
            bucket = []
        bucket.append(prompt)
    if bucket:
        yield bucket


def _fits(bucket: list[tuple[int, ...]], prompt: tuple[int, ...]) -> bool:
    padded = len(prompt) * (len(bucket) + 1)
    padding = padded - sum(map(len, bucket)) - len(prompt)
    return padded <= PREFILL_TOKENS and padding <= max(FREE_PADDING, MAX_PADDING * padded)
