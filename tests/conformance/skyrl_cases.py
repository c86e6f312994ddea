"""Cases of SkyRL's ppo_utils and its off-policy correction."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from cases import (
    CONSTANT,
    DUAL,
    GROUPS,
    GSPO,
    PPO,
    SEQUENCES,
    TOKENS,
    Case,
    of_correction,
    of_credit,
    of_loss,
)
from samples import Sample

from ludic_train.algorithms import batch_credit, credit, losses, off_policy
from ludic_train.algorithms.value_head import ValueLoss


def skyrl_cases() -> list[Case]:
    """SkyRL's ppo_utils and its off-policy correction."""
    from peers import alone

    utils = alone("skyrl.backends.skyrl_train.utils.ppo_utils")
    corr = alone("skyrl.backends.skyrl_train.utils.off_policy_correction_utils")
    none = SimpleNamespace(
        tis_ratio_type=None,
        sequence_mask_metric=None,
        outlier_token_is_threshold_low=None,
        outlier_token_is_threshold_high=None,
        token_mask_is_threshold_low=0.8,
        token_mask_is_threshold_high=1.2,
        token_tis_ratio_clip_high=1.2,
        sequence_tis_ratio_clip_high=1.2,
        geo_mask_high=1.05,
        geo_mask_low=0.95,
        product_mask_high=1.2,
        product_mask_low=0.0,
    )

    def config(**given):
        usual = {
            "policy_loss_type": "regular",
            "eps_clip_low": 0.2,
            "eps_clip_high": 0.28,
            "clip_ratio_c": 3.0,
            "off_policy_correction": none,
            "loss_reduction": "sequence_mean",
            "cispo": SimpleNamespace(cispo_eps_clip_low=1.0, cispo_eps_clip_high=4.0),
            "value_clip": 0.2,
        }
        return SimpleNamespace(**{**usual, **given})

    def policy(name, ours, aggregation, reduction, title, kind="loss", note="", **given):
        def run(s: Sample):
            ends = np.flatnonzero(np.diff(s.groups, append=-1)) + 1
            scaled = utils.apply_loss_reduction_to_advantages_minibatch(
                s.wide,
                s.mask,
                reduction,
                len(s.groups),
                8,
                list(zip([0, *ends[:-1]], ends, strict=True)),
            )
            # rollout_logprobs None, so that ratios are to `old` and nothing is corrected.
            off = SimpleNamespace(**{**vars(none), "token_mask_is_threshold_low": None})
            own = config(**{"off_policy_correction": off, **given})
            theirs, _ = getattr(utils, name)(s.new, s.old, scaled, own, s.mask)
            return of_loss(ours, s, aggregation), theirs

        theirs = f"{name}, {reduction}"
        return Case(ours=title, peer="SkyRL", theirs=theirs, kind=kind, run=run, note=note)

    def advantages(name, assigner, title, note="", tolerance=1e-5, **given):
        def run(s: Sample):
            found, _ = getattr(utils, name)(
                token_level_rewards=s.last_rewards(),
                response_mask=s.mask,
                index=np.array(s.groups),
                **given,
            )
            return of_credit(assigner, s), s.flat(found)

        return Case(
            ours=title,
            peer="SkyRL",
            theirs=name,
            kind="advantage",
            run=run,
            note=note,
            tolerance=tolerance,
        )

    def mask_of(ours, title, theirs, function, *, times_weight=False):
        def run(s: Sample):
            found = function(s).expand_as(s.mask)
            if times_weight == "token":
                found = found * (s.old - s.sampler).exp()
            if times_weight == "sequence":
                found = found * ((s.old - s.sampler) * s.mask).sum(1, keepdim=True).exp()
            return of_correction(ours, s), s.flat(found)

        return Case(ours=title, peer="SkyRL", theirs=theirs, kind="correction", run=run)

    def critic(s: Sample):
        theirs, _ = utils.ppo_critic_loss(s.values, s.old_values, s.returns, config(), s.mask)
        return of_loss(ValueLoss(1.0, 0.2), s, SEQUENCES), theirs

    return [
        policy(
            "ppo_policy_loss", PPO, TOKENS, "token_mean", "TokenClippedSurrogateLoss, token_mean"
        ),
        policy("ppo_policy_loss", PPO, SEQUENCES, "sequence_mean", "the same, sequence_mean"),
        policy("ppo_policy_loss", PPO, GROUPS, "prompt_mean", "the same, prompt_mean"),
        policy(
            "ppo_policy_loss", PPO, CONSTANT, "seq_mean_token_sum_norm", "the same, ConstantLength"
        ),
        policy(
            "ppo_policy_loss",
            DUAL,
            TOKENS,
            "token_mean",
            "the same, dual_clip",
            policy_loss_type="dual_clip",
        ),
        policy(
            "gspo_policy_loss",
            GSPO,
            SEQUENCES,
            "sequence_mean",
            "SequenceClippedSurrogateLoss",
            eps_clip_low=0.02,
            eps_clip_high=0.03,
        ),
        policy("compute_policy_loss_cispo", losses.CISPOLoss(), TOKENS, "token_mean", "CISPOLoss"),
        Case(
            ours="ValueLoss, sequence_mean",
            peer="SkyRL",
            theirs="ppo_critic_loss",
            kind="loss",
            run=critic,
        ),
        advantages(
            "compute_grpo_outcome_advantage",
            credit.GroupNormalizedReturn(),
            "GroupNormalizedReturn",
        ),
        advantages(
            "compute_rloo_outcome_advantage", credit.LeaveOneOutReturn(), "LeaveOneOutReturn"
        ),
        advantages(
            "compute_reinforce_plus_plus_outcome_advantage",
            batch_credit.TokenWhitened(),
            "TokenWhitened",
            gamma=1.0,
        ),
        mask_of(
            off_policy.TokenTruncation(1.2),
            "TokenTruncation",
            "compute_tis_ratio token",
            lambda s: corr.compute_tis_ratio(s.old, s.sampler, s.mask, "token", none)[0],
        ),
        mask_of(
            off_policy.SequenceTruncation(1.2),
            "SequenceTruncation",
            "compute_tis_ratio sequence",
            lambda s: corr.compute_tis_ratio(s.old, s.sampler, s.mask, "sequence", none)[0],
        ),
        mask_of(
            off_policy.TokenMask(0.8, 1.2),
            "TokenMask",
            "compute_token_mask * ratio",
            lambda s: corr.compute_token_mask(s.old, s.sampler, s.mask, none)[0],
            times_weight="token",
        ),
        mask_of(
            off_policy.SequenceMask(1.2),
            "SequenceMask",
            "compute_sequence_mask product * ratio",
            lambda s: corr.compute_sequence_mask(s.old, s.sampler, s.mask, "product", none)[0],
            times_weight="sequence",
        ),
        mask_of(
            off_policy.GeometricMask(0.95, 1.05),
            "GeometricMask",
            "compute_sequence_mask geometric",
            lambda s: corr.compute_sequence_mask(s.old, s.sampler, s.mask, "geometric", none)[0],
        ),
    ]
