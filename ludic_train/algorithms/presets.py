"""Presets: a credit assigner, a loss and an aggregation that belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludic_train.algorithms.aggregation import (
    Aggregation,
    ConstantLength,
    prompt_mean,
    sequence_mean,
    token_mean,
)
from ludic_train.algorithms.batch_credit import (
    BatchCenteredReturn,
    ExponentialAdvantage,
    OverlongPenalty,
    SeatBaselineReturn,
    TokenWhitenedReturn,
)
from ludic_train.algorithms.credit import (
    ConstantCredit,
    CreditAssigner,
    GroupNormalizedReturn,
    HybridNormalizedReturn,
    LeaveOneOutReturn,
    MonteCarloReturn,
    PerStepReward,
)
from ludic_train.algorithms.distillation import DistillationLoss
from ludic_train.algorithms.filters import Filter, drop_zero_variance_groups, keep_best
from ludic_train.algorithms.losses import (
    CISPOLoss,
    CompositeLoss,
    EntropyBonus,
    Loss,
    MaskedCausalLMCrossEntropyLoss,
    ReinforceLoss,
    SequenceClippedSurrogateLoss,
    TokenClippedSurrogateLoss,
)
from ludic_train.algorithms.value_head import GAE, ValueLoss
from ludic_train.types import REFERENCE, REWARDS, VALUES, SAWItem


@dataclass(frozen=True, slots=True, kw_only=True)
class RLAlgorithm:
    """Everything that tells one algorithm from another.

    preprocess: which rollouts are learned from, before credit; None keeps all.
    attach: what the trainer attaches to the rows of a batch before its updates: log-probs under a
        REFERENCE model, those under the params that begin the batch (PROXIMAL), their VALUES.
        Rollout sources attach REWARDS where they are named here.
    refine: credit that needs what was attached; from rows to rows, after attaching.
    full_batches: groups that `preprocess` drops are replaced by groups of further tasks.
    retire_at: tasks of which this share of the rollouts succeeded are not played again.
    max_lag: rows sampled by params older than this many updates are dropped, unless the trainer's
        config says otherwise.
    """

    name: str
    credit_assigner: CreditAssigner
    loss: Loss
    aggregation: Aggregation = token_mean
    preprocess: Filter | None = None
    attach: frozenset[str] = frozenset()
    refine: Callable[[Sequence[SAWItem]], list[SAWItem]] | None = None
    full_batches: bool = False
    retire_at: float | None = None
    max_lag: int | None = None


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


def make_reinforce_baseline(
    *, gamma: float = 1.0, max_ratio: float | None = None, entropy: float = 0.0
) -> RLAlgorithm:
    """REINFORCE with a baseline (Williams 1992): the mean return of the whole batch.

    Sets BatchCenteredReturn(gamma), ReinforceLoss(max_ratio) and the token mean.
    """
    return RLAlgorithm(
        name="reinforce_baseline",
        credit_assigner=BatchCenteredReturn(gamma),
        loss=with_entropy(ReinforceLoss(max_ratio), entropy),
    )


def make_reinforce_plus_plus(*, gamma: float = 1.0, clip: float = 0.2) -> RLAlgorithm:
    """REINFORCE++ (Hu et al. 2025, arXiv:2501.03262), without its KL penalty.

    Sets TokenWhitenedReturn(gamma), the clipped surrogate and the token mean.
    """
    return RLAlgorithm(
        name="reinforce_plus_plus",
        credit_assigner=TokenWhitenedReturn(gamma),
        loss=TokenClippedSurrogateLoss(clip, clip),
    )


def make_rloo(*, max_ratio: float | None = None, entropy: float = 0.0) -> RLAlgorithm:
    """RLOO (Ahmadian et al. 2024, arXiv:2402.14740): each rollout against the group's others.

    Sets LeaveOneOutReturn, ReinforceLoss(max_ratio), and the mean over rows of the sum over tokens:
    a completion is one action.
    """
    return RLAlgorithm(
        name="rloo",
        credit_assigner=LeaveOneOutReturn(),
        loss=with_entropy(ReinforceLoss(max_ratio), entropy),
        aggregation=ConstantLength(1),
        preprocess=drop_zero_variance_groups(),
    )


def make_dr_grpo(*, max_tokens: int, clip: float = 0.2, entropy: float = 0.0) -> RLAlgorithm:
    """Dr. GRPO (Liu et al. 2025, arXiv:2503.20783): GRPO without its two biases.

    Sets GroupNormalizedReturn without the std, the clipped surrogate, and 1 / (rows * max_tokens)
    for every token. max_tokens: the most that a row may sample.
    """
    return RLAlgorithm(
        name="dr_grpo",
        credit_assigner=GroupNormalizedReturn(divide_by_std=False),
        loss=with_entropy(TokenClippedSurrogateLoss(clip, clip), entropy),
        aggregation=ConstantLength(max_tokens),
        preprocess=drop_zero_variance_groups(),
    )


def make_dapo(*, max_tokens: int, buffer: int, entropy: float = 0.0) -> RLAlgorithm:
    """DAPO (Yu et al. 2025, arXiv:2503.14476).

    Sets clip-higher (0.2 below, 0.28 above), the token mean, GroupNormalizedReturn of rewards with
    OverlongPenalty(max_tokens, buffer), and dynamic sampling: groups of equal raw rewards are
    dropped and others played in their place. max_tokens: of a completion; buffer: the last of
    these, over which the penalty grows.
    """
    return RLAlgorithm(
        name="dapo",
        credit_assigner=OverlongPenalty(GroupNormalizedReturn(), max_tokens, buffer),
        loss=with_entropy(TokenClippedSurrogateLoss(0.2, 0.28), entropy),
        preprocess=drop_zero_variance_groups(),
        full_batches=True,
    )


def make_gspo(*, clip_low: float = 3e-4, clip_high: float = 4e-4) -> RLAlgorithm:
    """GSPO (Zheng et al. 2025, arXiv:2507.18071): one ratio per sequence.

    Sets GroupNormalizedReturn, SequenceClippedSurrogateLoss, the mean over rows of the mean over
    tokens, and drops groups of equal returns.
    """
    return RLAlgorithm(
        name="gspo",
        credit_assigner=GroupNormalizedReturn(),
        loss=SequenceClippedSurrogateLoss(clip_low, clip_high),
        aggregation=sequence_mean,
        preprocess=drop_zero_variance_groups(),
    )


def make_cispo(*, low: float = 0.0, high: float = 5.0, entropy: float = 0.0) -> RLAlgorithm:
    """CISPO (MiniMax-M1, arXiv:2506.13585): importance weights are clipped, tokens never.

    Sets GroupNormalizedReturn, CISPOLoss(low, high), the token mean, and drops groups of equal
    returns.
    """
    return RLAlgorithm(
        name="cispo",
        credit_assigner=GroupNormalizedReturn(),
        loss=with_entropy(CISPOLoss(low, high), entropy),
        preprocess=drop_zero_variance_groups(),
    )


def make_scalerl(*, high: float = 5.0, retire_at: float = 0.9, max_lag: int = 8) -> RLAlgorithm:
    """ScaleRL (Khatri et al. 2025, arXiv:2510.13786), the whole recipe.

    Sets CISPOLoss(0, high), the mean over prompts of the mean over their tokens, returns centred by
    group and divided by the batch's std, no groups of equal returns, no tasks again that
    `retire_at` of the rollouts solved, and rows at most `max_lag` updates old. The float32 head is
    how this trainer always computes; vLLM needs --hf-overrides '{"head_dtype":"float32"}'.
    """
    return RLAlgorithm(
        name="scalerl",
        credit_assigner=HybridNormalizedReturn(),
        loss=CISPOLoss(0.0, high),
        aggregation=prompt_mean,
        preprocess=drop_zero_variance_groups(),
        retire_at=retire_at,
        max_lag=max_lag,
    )


def make_ppo(
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    clip: float = 0.2,
    value_coefficient: float = 0.5,
    entropy: float = 0.0,
) -> RLAlgorithm:
    """PPO (Schulman et al. 2017, arXiv:1707.06347) with a value head; see `add_value_head`.

    Sets whitened GAE(gamma, lam) over the tokens of a row, the clipped surrogate, the clipped value
    loss and the token mean.
    """
    policy = with_entropy(TokenClippedSurrogateLoss(clip, clip), entropy)
    return RLAlgorithm(
        name="ppo",
        credit_assigner=PerStepReward(),
        loss=CompositeLoss((policy, ValueLoss(value_coefficient, clip))),
        attach=frozenset({VALUES, REWARDS}),
        refine=GAE(gamma, lam),
    )


def make_self_play(*, decay: float = 0.95, entropy: float = 0.0) -> RLAlgorithm:
    """Self-play with role-conditioned advantages (SPIRAL, Liu et al. 2025, arXiv:2506.24119).

    Sets SeatBaselineReturn(decay), REINFORCE and the mean over rows of the mean over tokens. Each
    call makes a new one, because the baseline is kept from batch to batch.
    """
    return RLAlgorithm(
        name="self_play",
        credit_assigner=SeatBaselineReturn(decay),
        loss=with_entropy(ReinforceLoss(), entropy),
        aggregation=sequence_mean,
    )


def make_awr(*, beta: float = 1.0, max_weight: float = 20.0) -> RLAlgorithm:
    """AWR (Peng et al. 2019, arXiv:1910.00177): imitate what was better than its group.

    Sets ExponentialAdvantage of centred returns and cross-entropy, token mean; needs no log-probs
    of the sampler, so recorded rollouts will do.
    """
    advantage = GroupNormalizedReturn(divide_by_std=False)
    return RLAlgorithm(
        name="awr",
        credit_assigner=ExponentialAdvantage(advantage, beta, max_weight),
        loss=MaskedCausalLMCrossEntropyLoss(),
    )


def make_distillation(*, max_ratio: float = 2.0) -> RLAlgorithm:
    """On-policy distillation (Agarwal et al. 2023, arXiv:2306.13649), by reverse KL.

    Sets DistillationLoss and the token mean; rewards are not used. The teacher is the trainer's
    `reference` model, or judges batches in a TaughtBatchSource.
    """
    return RLAlgorithm(
        name="distillation",
        credit_assigner=ConstantCredit(),
        loss=DistillationLoss(max_ratio=max_ratio),
        attach=frozenset({REFERENCE}),
    )


def make_rejection_sampling(*, best: int = 1, above: float = 0.0) -> RLAlgorithm:
    """Rejection sampling (RAFT, Dong et al. 2023, arXiv:2304.06767): imitate the best samples.

    Sets keep_best(best, above=above) for each group, and what `make_sft` sets; needs no log-probs
    of the sampler, so recorded rollouts will do.
    """
    return RLAlgorithm(
        name="rejection_sampling",
        credit_assigner=ConstantCredit(),
        loss=MaskedCausalLMCrossEntropyLoss(),
        preprocess=keep_best(best, above=above),
    )


def make_sft() -> RLAlgorithm:
    """Supervised fine-tuning: weight 1, cross-entropy of the action tokens, token mean."""
    return RLAlgorithm(
        name="sft", credit_assigner=ConstantCredit(), loss=MaskedCausalLMCrossEntropyLoss()
    )


def with_entropy(loss: Loss, coefficient: float) -> Loss:
    """`loss` with an entropy bonus; the loss itself for a coefficient of 0."""
    return CompositeLoss((loss, EntropyBonus(coefficient))) if coefficient else loss
