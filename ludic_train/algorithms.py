"""Presets: a credit assigner, a loss and an aggregation that belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludic_train.aggregation import Aggregation, sequence_mean, token_mean
from ludic_train.credit import (
    ConstantCredit,
    CreditAssigner,
    GroupNormalizedReturn,
    MonteCarloReturn,
)
from ludic_train.filters import Filter, drop_zero_variance_groups
from ludic_train.losses import (
    CompositeLoss,
    EntropyBonus,
    Loss,
    MaskedCausalLMCrossEntropyLoss,
    ReinforceLoss,
    TokenClippedSurrogateLoss,
)
from ludic_train.saw import SAWItem


@dataclass(frozen=True, slots=True, kw_only=True)
class RLAlgorithm:
    """Everything that tells one algorithm from another.

    preprocess: which rollouts are learned from, before credit; None keeps all.
    attach: what the trainer attaches to the rows of a batch before its updates: log-probs under a
        REFERENCE model, those under the params that begin the batch (PROXIMAL), their VALUES.
    refine: credit that needs what was attached; from rows to rows, after attaching.
    """

    name: str
    credit_assigner: CreditAssigner
    loss: Loss
    aggregation: Aggregation = token_mean
    preprocess: Filter | None = None
    attach: frozenset[str] = frozenset()
    refine: Callable[[Sequence[SAWItem]], list[SAWItem]] | None = None


def make_reinforce(
    *, gamma: float = 1.0, max_ratio: float | None = None, entropy: float = 0.0
) -> RLAlgorithm:
    """REINFORCE (Williams 1992): discounted returns times log-probs, averaged over tokens.

    Sets MonteCarloReturn(gamma), ReinforceLoss(max_ratio), token mean, no baseline and no filter.
    max_ratio: truncates importance weights against the sampler; needed as soon as params move
        between sampling and update.
    entropy: coefficient of an entropy bonus.
    """
    return RLAlgorithm(
        name="reinforce",
        credit_assigner=MonteCarloReturn(gamma),
        loss=with_entropy(ReinforceLoss(max_ratio), entropy),
    )


def make_grpo(
    *,
    clip: float = 0.2,
    dual_clip: float | None = None,
    entropy: float = 0.0,
    aggregation: Aggregation = sequence_mean,
) -> RLAlgorithm:
    """GRPO (Shao et al. 2024, arXiv:2402.03300), without a KL term.

    Sets GroupNormalizedReturn (divided by the group's std), the clipped surrogate with one ratio
    per token, the mean over rows of the mean over tokens, and drops groups of equal returns: they
    have no gradient and only dilute the others'.
    entropy: coefficient of an entropy bonus.
    """
    return RLAlgorithm(
        name="grpo",
        credit_assigner=GroupNormalizedReturn(),
        loss=with_entropy(TokenClippedSurrogateLoss(clip, clip, dual_clip), entropy),
        aggregation=aggregation,
        preprocess=drop_zero_variance_groups(),
    )


def make_sft() -> RLAlgorithm:
    """Supervised fine-tuning: weight 1, cross-entropy of the action tokens, token mean."""
    return RLAlgorithm(
        name="sft", credit_assigner=ConstantCredit(), loss=MaskedCausalLMCrossEntropyLoss()
    )


def with_entropy(loss: Loss, coefficient: float) -> Loss:
    """`loss` with an entropy bonus; the loss itself for a coefficient of 0."""
    return CompositeLoss((loss, EntropyBonus(coefficient))) if coefficient else loss
