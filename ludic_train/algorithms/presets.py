"""Presets: a credit assigner, a loss and an aggregation that belong together.

Each takes its own settings and, by name, any part of an `RLAlgorithm` to use in place of its own:

    grpo(clip=0.1, credit=LeaveOneOutReturn(), entropy=EntropyBonus(0.06, final=0.0, updates=1_000))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypedDict, Unpack

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import (
    Aggregation,
    ConstantLength,
    prompt_mean,
    sequence_mean,
    token_mean,
    weighted_token_mean,
)
from ludic_train.algorithms.batch_credit import (
    BatchCenteredReturn,
    OverlongPenalty,
    SeatBaselineReturn,
    TokenWhitened,
)
from ludic_train.algorithms.credit import (
    ConstantCredit,
    CreditAssigner,
    GroupNormalizedReturn,
    HybridNormalizedReturn,
    LeaveOneOutReturn,
    MonteCarloReturn,
    PerStepReward,
    compares_groups,
)
from ludic_train.algorithms.filters import Filter, drop_zero_variance_groups, keep_best
from ludic_train.algorithms.kl import DistillationLoss, TopKDistillationLoss
from ludic_train.algorithms.losses import (
    CISPOLoss,
    CompositeLoss,
    EntropyBonus,
    Loss,
    MaskedCausalLMCrossEntropyLoss,
    ReinforceLoss,
    SequenceClippedSurrogateLoss,
    SequenceReinforceLoss,
    TokenClippedSurrogateLoss,
)
from ludic_train.algorithms.value_head import GAE, ValueLoss
from ludic_train.types import REFERENCE, REWARDS, VALUES, SAWItem

CENTERED = GroupNormalizedReturn(divide_by_std=False)

# Credit that needs attachments; from rows to rows.
Refine = Callable[[Sequence[SAWItem]], list[SAWItem]]
# Coefficient of an entropy bonus, or a bonus whose coefficient falls.
Entropy = float | EntropyBonus


@dataclass(frozen=True, slots=True, kw_only=True)
class RLAlgorithm:
    """Everything that distinguishes one algorithm from another.

    credit: from the rewards of a batch to a weight per step.
    filter: selects the rollouts that credit compares, by their raw rewards; None keeps all.
    filter_after_credit: selects those of them that are learned from; the others count in the
        baselines alone. None keeps all.
    attach: names of streams that are attached to the rows of a batch before its updates: log-probs
        under a REFERENCE model, those under the params that begin the batch (PROXIMAL), their
        VALUES, the steps' REWARDS.
    refine: credit that needs these streams, after they were attached.
    teacher_top_k: number of most likely tokens of the reference, as a teacher, that are attached at
        each sampled token; None attaches none.
    full_batches: groups that `filter` drops are replaced by groups of further tasks.
    retire_at: tasks whose pass rate over all their rollouts reaches this are not played again.
    max_lag: rollouts with a token sampled by params older than this many updates are dropped, and
        their rows counted; None keeps all.
    think_share: share of a reply's tokens after which a thought is ended, where the run sets no
        number; None lets thoughts go on.

    >>> grpo(clip=0.1, max_lag=2).loss
    TokenClippedSurrogateLoss(clip_low=0.1, clip_high=0.1, dual_clip=None)
    """

    name: str
    credit: CreditAssigner
    loss: Loss
    aggregation: Aggregation = token_mean
    filter: Filter | None = None
    filter_after_credit: Filter | None = None
    attach: frozenset[str] = frozenset()
    refine: Refine | None = None
    teacher_top_k: int | None = None
    full_batches: bool = False
    retire_at: float | None = None
    max_lag: int | None = None
    think_share: float | None = None

    def __post_init__(self) -> None:
        if self.retire_at is not None and not 0 < self.retire_at <= 1:
            raise ConfigError(f"retire_at={self.retire_at}; it is a pass rate, in (0, 1]")
        if self.max_lag is not None and self.max_lag < 0:
            raise ConfigError(f"max_lag={self.max_lag}; it must be 0 or more, or None")
        if self.teacher_top_k is not None and self.teacher_top_k < 1:
            raise ConfigError(f"teacher_top_k={self.teacher_top_k}; it must be 1 or more, or None")

    @property
    def compares_groups(self) -> bool:
        """True if the credit of a rollout is relative to the others of its group."""
        return compares_groups(self.credit)

    def with_parts(self, parts: Parts) -> RLAlgorithm:
        """The algorithm with some of its parts replaced. Raises ConfigError for unknown names."""
        names = [field.name for field in fields(self)]
        if unknown := [name for name in parts if name not in names]:
            raise ConfigError(
                f"{self.name}() has no setting {unknown[0]!r}; parts that any preset takes: "
                f"{', '.join(names)}"
            )
        return replace(self, **parts)


class Parts(TypedDict, total=False):
    """Parts of an `RLAlgorithm` that a preset can be given in place of its own."""

    name: str
    credit: CreditAssigner
    loss: Loss
    aggregation: Aggregation
    filter: Filter | None
    filter_after_credit: Filter | None
    attach: frozenset[str]
    refine: Refine | None
    teacher_top_k: int | None
    full_batches: bool
    retire_at: float | None
    max_lag: int | None
    think_share: float | None


def reinforce(
    *,
    gamma: float = 1.0,
    max_ratio: float | None = None,
    max_sequence_ratio: float | None = None,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """REINFORCE (Williams 1992): discounted returns times log-probs, averaged over tokens.

    Sets MonteCarloReturn(gamma), ReinforceLoss(max_ratio), token mean, no baseline and no filter.
    max_ratio: truncates importance weights against the sampler; needed as soon as params move
        between sampling and update.
    max_sequence_ratio: the same for one weight per rollout, by SequenceReinforceLoss; one of both.
    entropy: coefficient of an entropy bonus.
    gamma: discount per step.
    """
    return RLAlgorithm(
        name="reinforce",
        credit=MonteCarloReturn(gamma),
        loss=with_entropy(_reinforce_loss(max_ratio, max_sequence_ratio), entropy),
    ).with_parts(parts)


def grpo(
    *,
    clip: float = 0.2,
    dual_clip: float | None = None,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """GRPO (Shao et al. 2024, arXiv:2402.03300), without a KL term.

    Sets GroupNormalizedReturn (divided by the group's std), the clipped surrogate with one ratio
    per token, the mean over rollouts of the mean over tokens, and drops groups of equal returns:
    they have no gradient and only dilute that of the others. Std, length and filter each turn the
    expected gradient away from that of the reward: on two prompts by 0.293, 0.091 and 0.073 of its
    length (`tests/exactness`); `rloo` and `dr_grpo` have none of these.
    entropy: coefficient of an entropy bonus.
    clip: distance from a ratio of 1 on both sides.
    dual_clip: bound of the loss where the advantage is negative; None for none.
    """
    return RLAlgorithm(
        name="grpo",
        credit=GroupNormalizedReturn(),
        loss=with_entropy(TokenClippedSurrogateLoss(clip, clip, dual_clip), entropy),
        aggregation=sequence_mean,
        filter=drop_zero_variance_groups(),
    ).with_parts(parts)


def reinforce_baseline(
    *,
    gamma: float = 1.0,
    max_ratio: float | None = None,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """REINFORCE with a baseline (Williams 1992): the mean return of the batch's other rollouts.

    Sets BatchCenteredReturn(gamma), ReinforceLoss(max_ratio) and the token mean.
    gamma, max_ratio, entropy: as in `reinforce`.
    """
    usual = reinforce(max_ratio=max_ratio, entropy=entropy, credit=BatchCenteredReturn(gamma))
    return usual.with_parts({"name": "reinforce_baseline", **parts})


def reinforce_plus_plus(
    *, gamma: float = 1.0, clip: float = 0.2, **parts: Unpack[Parts]
) -> RLAlgorithm:
    """REINFORCE++ (Hu et al. 2025, arXiv:2501.03262), without its KL penalty.

    Sets TokenWhitened returns, the clipped surrogate and the token mean.
    gamma: discount per step. clip: distance from a ratio of 1 on both sides.
    """
    credit, loss = TokenWhitened(MonteCarloReturn(gamma)), TokenClippedSurrogateLoss(clip, clip)
    return reinforce(name="reinforce_plus_plus", credit=credit, loss=loss).with_parts(parts)


def reinforce_plus_plus_baseline(
    *, clip: float = 0.2, entropy: Entropy = 0.0, **parts: Unpack[Parts]
) -> RLAlgorithm:
    """REINFORCE++-baseline (Hu et al. 2025, arXiv:2501.03262), without its KL penalty.

    Sets TokenWhitened of returns centred in their group, the clipped surrogate and the token mean;
    groups of equal returns stay, since the batch's mean moves their credit too.
    clip: distance from a ratio of 1 on both sides. entropy: coefficient of an entropy bonus.
    """
    usual = grpo(clip=clip, entropy=entropy, credit=TokenWhitened(CENTERED), filter=None)
    named: Parts = {"name": "reinforce_plus_plus_baseline", "aggregation": token_mean}
    return usual.with_parts({**named, **parts})


def rloo(
    *,
    max_ratio: float | None = None,
    max_sequence_ratio: float | None = None,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """RLOO (Ahmadian et al. 2024, arXiv:2402.14740): each rollout against the group's others.

    Sets LeaveOneOutReturn, ReinforceLoss(max_ratio), the mean over rollouts of the sum over
    tokens (a rollout is one action), and no filter. On policy the expected gradient is exactly that
    of the mean reward; dropping groups of equal returns would make the share of the others depend
    on luck. So it is for samples of another policy with a `max_sequence_ratio` that truncates none.
    max_ratio, max_sequence_ratio, entropy: as in `reinforce`.
    """
    return RLAlgorithm(
        name="rloo",
        credit=LeaveOneOutReturn(),
        loss=with_entropy(_reinforce_loss(max_ratio, max_sequence_ratio), entropy),
        # 1 / rollouts at every token, which makes the log-prob of a rollout a sum.
        aggregation=ConstantLength(1),
    ).with_parts(parts)


def dr_grpo(
    *, max_tokens: int, clip: float = 0.2, entropy: Entropy = 0.0, **parts: Unpack[Parts]
) -> RLAlgorithm:
    """Dr. GRPO (Liu et al. 2025, arXiv:2503.20783): GRPO without its biases.

    Sets GroupNormalizedReturn without the std, the clipped surrogate, 1 / (rollouts * max_tokens)
    for every token, and no filter. On policy, in groups of n, the expected gradient is exactly
    (n - 1) / (n max_tokens) times that of the mean reward.
    max_tokens: the most that a rollout may sample. clip, entropy: as in `grpo`.
    """
    # Division by the std favours prompts of little spread, by the own length long failures.
    share = ConstantLength(max_tokens)
    usual = grpo(clip=clip, entropy=entropy, credit=CENTERED, aggregation=share, filter=None)
    return usual.with_parts({"name": "dr_grpo", **parts})


def dapo(
    *,
    max_tokens: int,
    buffer: int | None = None,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """DAPO (Yu et al. 2025, arXiv:2503.14476).

    Sets clip-higher (0.2 below, 0.28 above), the token mean, GroupNormalizedReturn of rewards with
    OverlongPenalty(max_tokens, buffer), and dynamic sampling: groups of equal raw rewards are
    dropped and others played in their place.
    max_tokens: of a completion. buffer: the last of these, over which the penalty grows; without
        it, a fifth, as in the paper (4,096 of 20,480).
    entropy: coefficient of an entropy bonus.
    """
    buffer = max(1, max_tokens // 5) if buffer is None else buffer
    return grpo(
        name="dapo",
        # In the credit and not in the rewards: a group that differs in length alone is dropped.
        credit=OverlongPenalty(GroupNormalizedReturn(), max_tokens, buffer),
        loss=with_entropy(TokenClippedSurrogateLoss(0.2, 0.28), entropy),
        aggregation=token_mean,
        full_batches=True,
    ).with_parts(parts)


def gspo(*, clip_low: float = 3e-4, clip_high: float = 4e-4, **parts: Unpack[Parts]) -> RLAlgorithm:
    """GSPO (Zheng et al. 2025, arXiv:2507.18071): one ratio per sequence.

    Sets GroupNormalizedReturn, SequenceClippedSurrogateLoss, the mean over rollouts of the mean
    over tokens, and drops groups of equal returns.
    clip_low, clip_high: distances from a ratio of 1.
    """
    loss = SequenceClippedSurrogateLoss(clip_low, clip_high)
    return grpo(name="gspo", loss=loss).with_parts(parts)


def cispo(
    *, low: float = 0.0, high: float = 5.0, entropy: Entropy = 0.0, **parts: Unpack[Parts]
) -> RLAlgorithm:
    """CISPO (MiniMax-M1, arXiv:2506.13585): importance weights are clipped, tokens never.

    Sets GroupNormalizedReturn, CISPOLoss(low, high), the token mean, and drops groups of equal
    returns.
    low, high: bounds of the ratio. entropy: coefficient of an entropy bonus.
    """
    loss = with_entropy(CISPOLoss(low, high), entropy)
    return grpo(name="cispo", loss=loss, aggregation=token_mean).with_parts(parts)


def scalerl(*, high: float = 5.0, **parts: Unpack[Parts]) -> RLAlgorithm:
    """ScaleRL (Khatri et al. 2025, arXiv:2510.13786), the whole recipe.

    Sets CISPOLoss(0, high), the mean over prompts, returns centred by group and divided by the
    batch's std, no groups of equal returns, retirement of tasks at a pass rate of 0.9, and rows at
    most 8 updates old; thoughts end after 6/7 of a reply's tokens (12,288 of 14,336 in the paper),
    which is left for an answer, in runs or by `ThinkingBudget`. The head computes in float32
    always; vLLM's needs --hf-overrides '{"head_dtype":"float32"}'.
    high: upper bound of the ratio.
    """
    usual = cispo(high=high, credit=HybridNormalizedReturn(), aggregation=prompt_mean)
    recipe: Parts = {"name": "scalerl", "retire_at": 0.9, "max_lag": 8, "think_share": 6 / 7}
    return usual.with_parts({**recipe, **parts})


def ppo(
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    clip: float = 0.2,
    value_coefficient: float = 0.5,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """PPO (Schulman et al. 2017, arXiv:1707.06347) with a value head; see `add_value_head`.

    Sets whitened GAE(gamma, lam) over the tokens of a rollout, the clipped surrogate, the clipped
    value loss and the token mean.
    gamma: discount per token.
    lam: 1 trusts rewards alone, 0 the values alone. clip: of ratios and of values.
    value_coefficient: weight of the value loss.
    """
    policy = with_entropy(TokenClippedSurrogateLoss(clip, clip), entropy)
    return RLAlgorithm(
        name="ppo",
        # Replaced by `refine`, which knows the values; it checks that rewards are finite.
        credit=PerStepReward(),
        loss=CompositeLoss((policy, ValueLoss(value_coefficient, clip))),
        attach=frozenset({VALUES, REWARDS}),
        refine=GAE(gamma, lam),
    ).with_parts(parts)


def self_play(
    *, decay: float = 0.95, entropy: Entropy = 0.0, **parts: Unpack[Parts]
) -> RLAlgorithm:
    """Self-play with role-conditioned advantages (SPIRAL, Liu et al. 2025, arXiv:2506.24119).

    Sets SeatBaselineReturn(decay), REINFORCE and the mean over rollouts of the mean over tokens.
    Each call makes a new one, because the baseline is kept from batch to batch.
    decay: share of a seat's mean that a further rollout leaves.
    """
    credit = SeatBaselineReturn(decay)
    usual = reinforce(entropy=entropy, credit=credit, aggregation=sequence_mean)
    return usual.with_parts({"name": "self_play", **parts})


def rejection_sampling(*, best: int = 1, above: float = 0.0, **parts: Unpack[Parts]) -> RLAlgorithm:
    """Rejection sampling (RAFT, Dong et al. 2023, arXiv:2304.06767): imitate the best samples.

    Sets keep_best(best, above=above) for each group, and what `sft` sets; needs no log-probs
    of the sampler, so recorded rollouts will do.
    best: rollouts of a group that are imitated. above: return that each must exceed.
    """
    return sft(name="rejection_sampling", filter=keep_best(best, above=above)).with_parts(parts)


def sft(**parts: Unpack[Parts]) -> RLAlgorithm:
    """Supervised fine-tuning: weight 1, cross-entropy of the action tokens, their mean.

    Sets weighted_token_mean: tokens to which another credit gives the weight 0 are in no mean.
    """
    return RLAlgorithm(
        name="sft",
        credit=ConstantCredit(),
        loss=MaskedCausalLMCrossEntropyLoss(),
        aggregation=weighted_token_mean,
    ).with_parts(parts)


def distillation(*, max_ratio: float = 2.0, **parts: Unpack[Parts]) -> RLAlgorithm:
    """On-policy distillation (Agarwal et al. 2023, arXiv:2306.13649), by reverse KL.

    Sets DistillationLoss and the token mean; rewards are not used. The teacher is the trainer's
    `reference` model, or scores the batches of a TaughtBatchSource.
    max_ratio: largest importance weight against the sampler.
    """
    return RLAlgorithm(
        name="distillation",
        # The signal is in the loss, token by token, and rewards have no part in it.
        credit=ConstantCredit(),
        loss=DistillationLoss(max_ratio=max_ratio),
        attach=frozenset({REFERENCE}),
    ).with_parts(parts)


def top_k_distillation(*, k: int = 20, beta: float = 0.0, **parts: Unpack[Parts]) -> RLAlgorithm:
    """GKD (Agarwal et al. 2023, arXiv:2306.13649) over a teacher's k most likely tokens.

    Sets TopKDistillationLoss(beta) and the token mean; rewards and the sampler's log-probs are not
    used. The teacher is as in `distillation`; it gives k times as many numbers, and each token has
    an exact gradient in place of that of one sample.
    k: tokens whose probabilities are compared one by one; all others count as one. A vLLM server
        gives 20, and more with --max-logprobs.
    beta: 0 for the forward KL, 1 for the reverse KL, or between.
    """
    return distillation(
        loss=TopKDistillationLoss(beta), attach=frozenset(), teacher_top_k=k
    ).with_parts({"name": "top_k_distillation", **parts})


def with_entropy(loss: Loss, entropy: Entropy) -> Loss:
    """`loss` with an entropy bonus; the loss itself for a coefficient of 0."""
    if not entropy:
        return loss
    bonus = entropy if isinstance(entropy, EntropyBonus) else EntropyBonus(entropy)
    return CompositeLoss((loss, bonus))


def _reinforce_loss(max_ratio: float | None, max_sequence_ratio: float | None) -> Loss:
    """REINFORCE with importance weights per token, per rollout or none. Raises ConfigError."""
    if max_sequence_ratio is None:
        return ReinforceLoss(max_ratio)
    if max_ratio is not None:
        raise ConfigError(
            f"max_ratio={max_ratio} weighs tokens and max_sequence_ratio={max_sequence_ratio} "
            "rollouts; give one of them"
        )
    return SequenceReinforceLoss(max_sequence_ratio)
