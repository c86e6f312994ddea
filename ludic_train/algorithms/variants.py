"""Presets that change one part of another (a baseline, a scale, a trust region), distillation.

As in `presets`, each takes any part of an `RLAlgorithm` by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from ludic_train.algorithms.aggregation import token_mean
from ludic_train.algorithms.batch_credit import TokenWhitened
from ludic_train.algorithms.credit import (
    BatchScaledReturn,
    ConstantCredit,
    GroupNormalizedReturn,
    MeanScaledReturn,
)
from ludic_train.algorithms.entropy_control import (
    AdaptiveEntropy,
    AdaptiveEntropyBonus,
    ClipCovLoss,
    KLCovLoss,
    RandomCovariance,
    TopCovariance,
)
from ludic_train.algorithms.kl import DistillationLoss, TopKDistillationLoss
from ludic_train.algorithms.losses import CompositeLoss, TokenClippedSurrogateLoss
from ludic_train.algorithms.presets import (
    Entropy,
    Parts,
    RLAlgorithm,
    grpo,
    ppo,
    rloo,
    with_entropy,
)
from ludic_train.algorithms.trust_region import DPPOLoss, GMPOLoss, SAPOLoss
from ludic_train.algorithms.turn_credit import AnchorStateReturn, ProcessReward, TurnGAE
from ludic_train.types import REFERENCE

CENTERED = GroupNormalizedReturn(divide_by_std=False)


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


def lite_ppo(*, clip: float = 0.2, entropy: Entropy = 0.0, **parts: Unpack[Parts]) -> RLAlgorithm:
    """Lite PPO (Liu et al. 2025, arXiv:2508.08221): no critic, no more tricks than two.

    Sets BatchScaledReturn (centred by group, divided by the batch's std), the clipped surrogate and
    the token mean; groups of equal returns stay, since they are part of the batch's std.
    clip, entropy: as in `reinforce_plus_plus_baseline`.
    """
    usual = grpo(clip=clip, entropy=entropy, credit=BatchScaledReturn(), filter=None)
    return usual.with_parts({"name": "lite_ppo", "aggregation": token_mean, **parts})


def max_rl(
    *, max_ratio: float | None = None, entropy: Entropy = 0.0, **parts: Unpack[Parts]
) -> RLAlgorithm:
    """MaxRL (Tajwar et al. 2026, arXiv:2602.02710): towards the likelihood of success.

    Sets MeanScaledReturn and what `rloo` sets. On policy, for rewards of 0 and 1 in groups of n,
    the expected gradient is exactly that of sum_{k=1}^{n-1} pass@k / k.
    max_ratio: as in `reinforce`. entropy: coefficient of an entropy bonus.
    """
    usual = rloo(max_ratio=max_ratio, entropy=entropy, credit=MeanScaledReturn())
    return usual.with_parts({"name": "max_rl", **parts})


def dppo(
    *,
    low: float = 0.2,
    high: float = 0.2,
    max_ratio: float = 20.0,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """Divergence PPO (Qi et al. 2026, arXiv:2602.04879): probabilities are bounded, not ratios.

    Sets DPPOLoss(low, high, max_ratio), returns centred in their group, the token mean, and drops
    groups of equal returns.
    low, high: largest moves of a token's probability. max_ratio: largest importance weight.
    entropy: coefficient of an entropy bonus.
    """
    loss = with_entropy(DPPOLoss(low, high, max_ratio), entropy)
    usual = grpo(loss=loss, credit=CENTERED, aggregation=token_mean)
    return usual.with_parts({"name": "dppo", **parts})


def sapo(
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """SAPO (Gao et al. 2025, arXiv:2511.20347): GRPO with a soft gate in place of the clip.

    Sets SAPOLoss(tau_positive, tau_negative) and what `grpo` sets.
    tau_positive, tau_negative: steepness by the sign of the advantage.
    entropy: coefficient of an entropy bonus.
    """
    loss = with_entropy(SAPOLoss(tau_positive, tau_negative), entropy)
    return grpo(loss=loss).with_parts({"name": "sapo", **parts})


def gmpo(*, clip: float = 0.4, entropy: Entropy = 0.0, **parts: Unpack[Parts]) -> RLAlgorithm:
    """GMPO (Zhao et al. 2025, arXiv:2507.20673): GRPO with the geometric mean of token ratios.

    Sets GMPOLoss(clip) and what `grpo` sets.
    clip: largest log of a token's ratio that is rewarded. entropy: coefficient of an entropy bonus.
    """
    return grpo(loss=with_entropy(GMPOLoss(clip), entropy)).with_parts({"name": "gmpo", **parts})


def clip_cov(
    *,
    clip: float = 0.2,
    share: float = 2e-4,
    cov_low: float = 1.0,
    cov_high: float = 5.0,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """Clip-Cov (Cui et al. 2025, arXiv:2505.22617): tokens that would lower entropy most rest.

    Sets ClipCovLoss of the clipped surrogate, RandomCovariance(share, cov_low, cov_high) as
    `refine`, the token mean, and what else `grpo` sets.
    clip: distance from a ratio of 1 on both sides. share: of tokens, at most.
    cov_low, cov_high: bounds of their covariance. entropy: coefficient of an entropy bonus.
    """
    loss = with_entropy(ClipCovLoss(TokenClippedSurrogateLoss(clip, clip)), entropy)
    select = RandomCovariance(share, cov_low, cov_high)
    usual = grpo(loss=loss, refine=select, aggregation=token_mean)
    return usual.with_parts({"name": "clip_cov", **parts})


def kl_cov(
    *,
    clip: float = 0.2,
    share: float = 2e-3,
    penalty: float = 1.0,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """KL-Cov (Cui et al. 2025, arXiv:2505.22617): tokens that would lower entropy most are held.

    Sets the clipped surrogate with KLCovLoss(penalty), TopCovariance(share) as `refine`, the token
    mean, and what else `grpo` sets. It needs several updates from a batch to make a difference.
    clip: distance from a ratio of 1 on both sides. share: of tokens. penalty: weight of their term.
    entropy: coefficient of an entropy bonus.
    """
    held = CompositeLoss((TokenClippedSurrogateLoss(clip, clip), KLCovLoss(penalty)))
    usual = grpo(
        loss=with_entropy(held, entropy), refine=TopCovariance(share), aggregation=token_mean
    )
    return usual.with_parts({"name": "kl_cov", **parts})


def gigpo(
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    clip: float = 0.2,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """GiGPO (Feng et al. 2025, arXiv:2505.10978): steps from equal states are compared too.

    Sets AnchorStateReturn(weight=step_weight, gamma=gamma), the clipped surrogate and the mean over
    rollouts of the mean over tokens. Groups of equal returns stay: their steps may still differ.
    gamma: discount per step of the returns that are compared. step_weight: of a step's advantage,
    beside the episode's. clip, entropy: as in `grpo`.
    """
    credit = AnchorStateReturn(weight=step_weight, gamma=gamma)
    usual = grpo(clip=clip, entropy=entropy, credit=credit, filter=None)
    return usual.with_parts({"name": "gigpo", **parts})


def process_grpo(
    *, clip: float = 0.2, entropy: Entropy = 0.0, **parts: Unpack[Parts]
) -> RLAlgorithm:
    """GRPO with process supervision (Shao et al. 2024, arXiv:2402.03300): rewards of steps.

    Sets ProcessReward and what `grpo` sets, but keeps groups of equal returns: their steps may
    still differ. clip, entropy: as in `grpo`.
    """
    usual = grpo(clip=clip, entropy=entropy, credit=ProcessReward(), filter=None)
    return usual.with_parts({"name": "process_grpo", **parts})


def turn_ppo(
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    clip: float = 0.2,
    value_coefficient: float = 0.5,
    entropy: Entropy = 0.0,
    **parts: Unpack[Parts],
) -> RLAlgorithm:
    """PPO with one advantage per turn of an episode; see `TurnGAE` and `ppo`.

    Sets TurnGAE(gamma, lam) and what `ppo` sets.
    gamma: discount per turn. lam, clip, value_coefficient, entropy: as in `ppo`.
    """
    usual = ppo(clip=clip, value_coefficient=value_coefficient, entropy=entropy)
    return usual.with_parts({"name": "turn_ppo", "refine": TurnGAE(gamma, lam), **parts})


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
