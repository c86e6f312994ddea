"""Control of entropy: by the tokens that lower it most, or by a coefficient that follows a target.

A token lowers the entropy of a policy by the covariance of its weight and its log-prob, over the
sampled tokens of a batch: cov_t = (A_t - mean A) (b_t - mean b) (Cui et al. 2025,
arXiv:2505.22617).
Selectors are for an algorithm's `refine`: they see the whole batch once, by the sampler's
log-probs, so that micro-batches and ranks cannot change the selection. Losses read it as the
attachment SELECTED.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import at_sampled
from ludic_train.algorithms.credit import Stateful
from ludic_train.algorithms.losses import (
    Loss,
    LossMetrics,
    attachment,
    check_positive,
    k3,
    log_ratio,
    scaled_sum,
    token_stat,
)
from ludic_train.errors import MissingLogprobs
from ludic_train.types import ENTROPY_COEFFICIENT, SELECTED, LossBatch, SAWItem, TokenLogprobs

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TopCovariance:
    """Select the tokens of largest covariance, for `KLCovLoss`.

    share: of all sampled tokens, rounded down to at least 1 token.

    The first token is the likelier one and has the larger weight, so it lowers entropy more:

    >>> row = SAWItem(
    ...     input_ids=np.array([7, 5, 6, 4], np.int32),
    ...     action_mask=np.array([False, True, True, True]),
    ...     weight=np.array([0, 2, 0, 0], np.float32),
    ...     behavior_logprobs=np.array([0, -0.5, -1.0, -2.5], np.float32),
    ... )
    >>> TopCovariance(share=0.3)([row])[0].attachments[SELECTED].tolist()
    [0.0, 1.0, 0.0, 0.0]
    """

    share: float = 2e-3

    def __post_init__(self) -> None:
        _check_share("TopCovariance", self.share)

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with SELECTED attached. Raises MissingLogprobs."""
        found = covariances(items)
        # A stable sort: of equal tokens the first, whatever the machine.
        order = np.argsort(-found, kind="stable")
        return _selected(items, order[: _count(self.share, found)])


@dataclass(frozen=True, slots=True)
class RandomCovariance:
    """Select tokens at random among those of a covariance in (low, high), for `ClipCovLoss`.

    share: most of all sampled tokens, rounded down to at least 1 token. low, high: bounds.
    seed: of the choice, beside the batch's own log-probs: the same batch gives the same tokens.
    """

    share: float = 2e-4
    low: float = 1.0
    high: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_share("RandomCovariance", self.share)
        if not self.low < self.high:
            raise ConfigError(f"RandomCovariance has low={self.low}, high={self.high}; low < high")

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with SELECTED attached. Raises MissingLogprobs."""
        found = covariances(items)
        within = np.flatnonzero((found > self.low) & (found < self.high))
        # From the data and not from a state, so that a resumed run chooses as the interrupted one.
        rng = np.random.default_rng((self.seed, zlib.crc32(found.tobytes())))
        return _selected(items, rng.permutation(within)[: _count(self.share, found)])


def covariances(items: Sequence[SAWItem]) -> Array:
    """cov_t of the sampled tokens of all items, in order, float64. Raises MissingLogprobs.

    >>> row = SAWItem(
    ...     input_ids=np.array([7, 5, 6], np.int32),
    ...     action_mask=np.array([False, True, True]),
    ...     weight=np.array([0, 1, -1], np.float32),
    ...     behavior_logprobs=np.array([0, -0.5, -2.5], np.float32),
    ... )
    >>> covariances([row]).tolist()
    [1.0, 1.0]
    """
    logprobs = sampled_logprobs(items)
    weight = np.concatenate([np.zeros(0), *(item.weight[item.action_mask] for item in items)])
    # The mean of nothing is nan, with a warning.
    if not len(weight):
        return weight
    found: Array = (weight - weight.mean()) * (logprobs - logprobs.mean())
    return found


def sampled_logprobs(items: Sequence[SAWItem]) -> Array:
    """The sampler's log-probs of all sampled tokens, in order, float64. Raises MissingLogprobs."""
    parts = [i.behavior_logprobs[i.action_mask] for i in items if i.behavior_logprobs is not None]
    if len(parts) < len(items):
        raise MissingLogprobs(
            "control of entropy reads the sampler's log-probs and a row has none; sample with a "
            "client that returns them"
        )
    # The empty one first: numpy refuses to concatenate no arrays at all.
    return np.concatenate([np.zeros(0), *parts])


@dataclass(frozen=True, slots=True)
class ClipCovLoss:
    """Clip-Cov: another loss without the selected tokens (arXiv:2505.22617, eq. 12).

    loss: such as TokenClippedSurrogateLoss(). Its denominators still count the tokens that are left
    out. Raises MissingAttachment without SELECTED.
    """

    loss: Loss

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss and its metrics; metric `selected`, a share of tokens."""
        selected = attachment(batch, SELECTED)
        # By their scale and not their weight: a term of the loss that reads no weight, such as a KL
        # penalty, must not hold them back either.
        value, metrics = self.loss(out, replace(batch, scale=batch.scale * (1 - selected)))
        return value, metrics | {"selected": token_stat(selected)}


@dataclass(frozen=True, slots=True)
class KLCovLoss:
    """KL-Cov: the selected tokens are held to the sampler (arXiv:2505.22617, eq. 14).

    l_t = coefficient (r_t - 1 - log r_t) at selected tokens and 0 at others, beside the policy's
    loss: its expected gradient is that of KL(sampler || policy) given the prefixes. The paper's
    code has |log r_t|, which pulls with full force on rounding differences of kernels. At a ratio
    of 1 there is no gradient, so this acts from the second update of a batch on, or on rows of
    older params. Raises MissingAttachment without SELECTED, and MissingLogprobs.
    coefficient: weight of the term.
    """

    coefficient: float = 1.0

    def __post_init__(self) -> None:
        check_positive("KLCovLoss.coefficient", self.coefficient)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `selected`, a share of tokens."""
        selected = attachment(batch, SELECTED)
        per_token = self.coefficient * selected * k3(log_ratio(out, batch))
        return scaled_sum(per_token, batch), {"selected": token_stat(selected)}


@dataclass(slots=True)
class AdaptiveEntropy:
    """Controller of an entropy bonus: its coefficient rises while entropy is below a target.

    For an algorithm's `refine`, with `AdaptiveEntropyBonus` in its loss; see `with_target_entropy`.
    For each batch the coefficient moves up by `step` where the entropy is at most the target, else
    down, within [0, highest]; the bonus is given only in the first case (Skywork-OR1, He et al.
    2025, arXiv:2505.22312). The entropy is estimated by the mean of -log-prob over the sampled
    tokens, which is unbiased for that of the sampler. Each algorithm needs one of its own.
    target: nats per token. step, highest: of the coefficient. first: refines the items before.
    coefficient: the one that is reached; it is kept in checkpoints.

    Tokens of -0.1 nats are below the target of 0.2, so the coefficient rises:

    >>> row = SAWItem(
    ...     input_ids=np.array([7, 5], np.int32),
    ...     action_mask=np.array([False, True]),
    ...     weight=np.array([0, 1], np.float32),
    ...     behavior_logprobs=np.array([0, -0.1], np.float32),
    ... )
    >>> control = AdaptiveEntropy(target=0.2)
    >>> for _ in range(3):
    ...     print(round(float(control([row])[0].attachments[ENTROPY_COEFFICIENT][1]), 4))
    0.005
    0.01
    0.015
    """

    target: float
    step: float = 0.005
    highest: float = 0.1
    first: Callable[[Sequence[SAWItem]], list[SAWItem]] | None = None
    coefficient: float = 0.0

    def __post_init__(self) -> None:
        for name in ("target", "step", "highest"):
            check_positive(f"AdaptiveEntropy.{name}", getattr(self, name))

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with ENTROPY_COEFFICIENT attached. Raises MissingLogprobs."""
        refined = list(items) if self.first is None else self.first(items)
        logprobs = sampled_logprobs(refined)
        # Sums and no mean: a batch without sampled tokens has none.
        low = -logprobs.sum() <= self.target * len(logprobs)
        moved = self.coefficient + (self.step if low else -self.step)
        # Without bounds, the coefficient would take as long to come back as it took to go too far.
        self.coefficient = min(max(moved, 0.0), self.highest)
        # Not the coefficient itself: above the target, a bonus would push entropy further up.
        given = self.coefficient if low else 0.0
        return [
            replace(
                item,
                attachments={
                    **item.attachments,
                    ENTROPY_COEFFICIENT: (given * item.action_mask).astype(np.float32),
                },
            )
            for item in refined
        ]

    def state_dict(self) -> dict[str, Any]:
        """The coefficient, and the state of `first` where that keeps one."""
        first: object = self.first
        kept = {"first": first.state_dict()} if isinstance(first, Stateful) else {}
        return {"coefficient": self.coefficient, **kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the coefficient of `state`."""
        self.coefficient = float(state["coefficient"])
        first: object = self.first
        if isinstance(first, Stateful):
            first.load_state_dict(state["first"])


@dataclass(frozen=True, slots=True)
class AdaptiveEntropyBonus:
    """An entropy bonus of the coefficient that `AdaptiveEntropy` attached: l_t = -c entropy_t.

    Raises MissingAttachment without ENTROPY_COEFFICIENT.
    """

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `entropy_coefficient`."""
        given = attachment(batch, ENTROPY_COEFFICIENT)
        return scaled_sum(-given * out.entropy, batch), {"entropy_coefficient": token_stat(given)}


def _selected(items: Sequence[SAWItem], chosen: NDArray[np.int64]) -> list[SAWItem]:
    """The items with 1 attached at the chosen ones of all sampled tokens, 0 elsewhere."""
    counts = [int(np.count_nonzero(item.action_mask)) for item in items]
    flags = np.zeros(sum(counts), np.float32)
    flags[chosen] = 1
    # Numpy adds an empty part after the last sum, and gives one part where there are no items.
    parts = np.split(flags, np.cumsum(counts))[: len(counts)]
    return [
        replace(item, attachments={**item.attachments, SELECTED: at_sampled(item, part)})
        for item, part in zip(items, parts, strict=True)
    ]


def _count(share: float, found: Array) -> int:
    """Tokens to select."""
    # The paper's shares are so small that those of a small batch are less than one token.
    return max(1, math.floor(share * len(found)))


def _check_share(name: str, share: float) -> None:
    """Raise ConfigError for a share outside (0, 1]."""
    if not 0 < share <= 1:
        raise ConfigError(f"{name}.share is {share}; it is a share of the tokens, in (0, 1]")
