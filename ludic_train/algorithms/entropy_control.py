"""An entropy bonus whose coefficient follows a target (Skywork-OR1, arXiv:2505.22312)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from ludic_train.algorithms.credit import Stateful
from ludic_train.algorithms.losses import (
    CompositeLoss,
    LossMetrics,
    attachment,
    check_positive,
    scaled_sum,
    token_stat,
)
from ludic_train.algorithms.presets import RLAlgorithm
from ludic_train.errors import MissingLogprobs
from ludic_train.types import ENTROPY_COEFFICIENT, LossBatch, SAWItem, TokenLogprobs


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
        # Sums and no mean: a batch without sampled tokens has none.
        entropy, tokens = 0.0, 0
        for item in refined:
            if item.behavior_logprobs is None:
                raise MissingLogprobs(
                    "control of entropy reads the sampler's log-probs and a row has none; sample "
                    "with a client that returns them"
                )
            sampled = item.behavior_logprobs[item.action_mask]
            entropy, tokens = entropy - float(sampled.sum(dtype=np.float64)), tokens + len(sampled)
        low = entropy <= self.target * tokens
        moved = self.coefficient + (self.step if low else -self.step)
        # Without bounds, the coefficient would take as long to come back as it took to go too far.
        self.coefficient = min(max(moved, 0.0), self.highest)
        # Not the coefficient itself: above the target, a bonus would push entropy further up.
        coefficient = self.coefficient if low else 0.0
        return [
            replace(
                item,
                attachments={
                    **item.attachments,
                    ENTROPY_COEFFICIENT: (coefficient * item.action_mask).astype(np.float32),
                },
            )
            for item in refined
        ]

    def state_dict(self) -> dict[str, Any]:
        """The coefficient, and the state of `first` where that keeps one."""
        first: object = self.first
        rest = {"first": first.state_dict()} if isinstance(first, Stateful) else {}
        return {"coefficient": self.coefficient, **rest}

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
        coefficient = attachment(batch, ENTROPY_COEFFICIENT)
        metrics = {"entropy_coefficient": token_stat(coefficient)}
        return scaled_sum(-coefficient * out.entropy, batch), metrics


def with_target_entropy(
    algo: RLAlgorithm, target: float, *, step: float = 0.005, highest: float = 0.1
) -> RLAlgorithm:
    """The algorithm with an entropy bonus whose coefficient follows a target.

        algo = with_target_entropy(grpo(), 0.2)

    Sets AdaptiveEntropy(target, step, highest) before the updates of each batch, and its bonus in
    the loss. target: nats per token. Raises ConfigError for settings that are not positive.

    >>> from ludic_train import grpo
    >>> with_target_entropy(grpo(), 0.2).refine
    AdaptiveEntropy(target=0.2, step=0.005, highest=0.1, first=None, coefficient=0.0)
    """
    return replace(
        algo,
        loss=CompositeLoss((algo.loss, AdaptiveEntropyBonus())),
        refine=AdaptiveEntropy(target, step, highest, algo.refine),
    )
