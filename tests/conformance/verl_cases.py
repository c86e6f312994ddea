"""Cases of verl's core_algos and its correction of rollouts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from cases import (
    CENTERED,
    CONSTANT,
    DUAL,
    GSPO,
    PPO,
    SEQUENCES,
    SUMS,
    TOKENS,
    Case,
    of_correction,
    of_credit,
    of_gae,
    of_loss,
    whitened,
)
from samples import Sample

from ludic_train.algorithms import batch_credit, credit, kl, losses, off_policy
from ludic_train.algorithms.value_head import ValueLoss


def verl_cases() -> list[Case]:
    """verl's core_algos and its correction of rollouts."""
    from verl.trainer.ppo import core_algos as algos
    from verl.trainer.ppo import rollout_corr_helper as corr
    from verl.workers.config import ActorConfig

    def config(**given):
        usual = {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
        plain = {"strategy": "fsdp", "rollout_n": 1, "use_dynamic_bsz": True}
        return ActorConfig(**plain, **{**usual, "clip_ratio_c": 1e9, **given})

    def policy(name, ours, aggregation, mode, title, kind="loss", note="", behavior="old", **given):
        function = algos.get_policy_loss_fn(name)

        def run(s: Sample):
            old = getattr(s, behavior)
            theirs, _ = function(old, s.new, s.wide, s.mask, mode, config=config(**given))
            return of_loss(ours, s, aggregation, behavior), theirs

        return Case(
            ours=title, peer="verl", theirs=f"{name}, {mode}", kind=kind, run=run, note=note
        )

    def reinforce(s: Sample):
        ratio = (s.new - s.old).detach().exp().clamp(max=2.0)
        theirs, _ = algos.compute_policy_loss_reinforce(
            s.old, s.new, s.wide, s.mask, "seq-mean-token-sum", config(), ratio
        )
        return of_loss(losses.ReinforceLoss(2.0), s, SUMS), theirs

    def reinforce_by_sequence(s: Sample):
        total = ((s.new - s.old).detach() * s.mask).sum(1, keepdim=True)
        ratio = total.exp().clamp(max=2.0).expand_as(s.new)
        theirs, _ = algos.compute_policy_loss_reinforce(
            s.old, s.new, s.wide, s.mask, "seq-mean-token-sum", config(), ratio
        )
        return of_loss(losses.SequenceReinforceLoss(2.0), s, SUMS), theirs

    def value(s: Sample):
        theirs, _ = algos.compute_value_loss(s.values, s.returns, s.old_values, s.mask, 0.2)
        return of_loss(ValueLoss(1.0, 0.2), s, TOKENS), theirs

    def kl_k2(s: Sample):
        matrix = algos.kl_penalty(s.new, s.ref, "k2")
        return of_loss(kl.TokenKLLoss(1.0), s, TOKENS), algos.agg_loss(matrix, s.mask, "token-mean")

    def kl_k3(s: Sample):
        matrix = algos.kl_penalty_forward(s.new.detach(), s.ref, "k3")
        return losses.k3(s.flat(s.ref - s.new.detach())).clamp(max=10), s.flat(matrix)

    def advantages(function, assigner, **given):
        def run(s: Sample):
            index = np.array(s.groups)
            found, _ = function(
                token_level_rewards=s.last_rewards(), response_mask=s.mask, index=index, **given
            )
            return of_credit(assigner, s), s.flat(found)

        return run

    def gae(s: Sample):
        found, _ = algos.compute_gae_advantage_return(
            s.last_rewards(), s.old_values, s.mask, 0.9, 0.8
        )
        return whitened(of_gae(s)), s.flat(found)

    def weights(ours, mode, threshold, title):
        def run(s: Sample):
            found, _ = corr.compute_rollout_correction_weights(
                s.old - s.sampler, s.mask, mode, threshold
            )
            return of_correction(ours, s), s.flat(found)

        theirs = f"rollout_is={mode} {threshold}"
        return Case(ours=title, peer="verl", theirs=theirs, kind="correction", run=run)

    def geometric(s: Sample):
        found, _ = corr.compute_rollout_rejection_mask(
            s.old - s.sampler, s.mask, "seq_mean_k1", f"{1 / 1.05}_{1 / 0.95}"
        )
        return of_correction(off_policy.GeometricMask(0.95, 1.05), s), s.flat(found)

    def plain(ours, theirs, kind, run, note=""):
        return Case(ours=ours, peer="verl", theirs=theirs, kind=kind, run=run, note=note)

    grpo, rf = algos.compute_grpo_outcome_advantage, "compute_reinforce_plus_plus"
    per_token = {"gamma": 1.0}
    return [
        policy("vanilla", PPO, TOKENS, "token-mean", "TokenClippedSurrogateLoss, token_mean"),
        policy("vanilla", PPO, SEQUENCES, "seq-mean-token-mean", "the same, sequence_mean"),
        policy("vanilla", PPO, CONSTANT, "seq-mean-token-sum-norm", "the same, ConstantLength"),
        policy("vanilla", DUAL, TOKENS, "token-mean", "the same, dual_clip", clip_ratio_c=3.0),
        policy(
            "gspo",
            GSPO,
            SEQUENCES,
            "seq-mean-token-mean",
            "SequenceClippedSurrogateLoss",
            clip_ratio_low=0.02,
            clip_ratio_high=0.03,
        ),
        policy("cispo", losses.CISPOLoss(0.8, 1.28), TOKENS, "token-mean", "CISPOLoss"),
        plain("ReinforceLoss, max_ratio", "compute_policy_loss_reinforce", "loss", reinforce),
        plain(
            "SequenceReinforceLoss", "compute_policy_loss_reinforce", "loss", reinforce_by_sequence
        ),
        plain("ValueLoss", "compute_value_loss", "loss", value),
        plain("TokenKLLoss", "kl_penalty k2", "loss", kl_k2),
        plain(
            "metric reference_kl", "kl_penalty k3", "correction", kl_k3, "verl cuts it off at 10"
        ),
        plain(
            "GroupNormalizedReturn",
            grpo.__name__,
            "advantage",
            advantages(grpo, credit.GroupNormalizedReturn()),
        ),
        plain(
            "the same, divide_by_std=False",
            "the same, norm_adv_by_std_in_grpo=False",
            "advantage",
            advantages(grpo, CENTERED, norm_adv_by_std_in_grpo=False),
        ),
        plain(
            "LeaveOneOutReturn",
            "compute_rloo_outcome_advantage",
            "advantage",
            advantages(algos.compute_rloo_outcome_advantage, credit.LeaveOneOutReturn()),
        ),
        plain(
            "TokenWhitened",
            f"{rf}_outcome_advantage",
            "advantage",
            advantages(
                algos.compute_reinforce_plus_plus_outcome_advantage,
                batch_credit.TokenWhitened(),
                config=SimpleNamespace(**per_token),
            ),
        ),
        plain(
            "TokenWhitened of centred returns",
            f"{rf}_baseline_outcome_advantage",
            "advantage",
            advantages(
                algos.compute_reinforce_plus_plus_baseline_outcome_advantage,
                batch_credit.TokenWhitened(CENTERED),
            ),
        ),
        plain("GAE", "compute_gae_advantage_return", "advantage", gae),
        weights(off_policy.TokenTruncation(1.2), "token", 1.2, "TokenTruncation"),
        weights(off_policy.TokenMask(0.8, 1.2), "token", "0.8_1.2", "TokenMask"),
        weights(off_policy.SequenceTruncation(1.2), "sequence", 1.2, "SequenceTruncation"),
        plain(
            "GeometricMask",
            "rollout_rs=seq_mean_k1",
            "correction",
            geometric,
            "verl bounds the inverse",
        ),
    ]
