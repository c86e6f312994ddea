"""Cases of OpenRLHF's models.loss."""

from __future__ import annotations

import torch
from cases import DUAL, GSPO, PPO, SEQUENCES, TOKENS, Case, of_loss
from samples import Sample

from ludic_train.algorithms import losses, off_policy, preferences
from ludic_train.algorithms.value_head import ValueLoss
from ludic_train.types import REFERENCE, LossBatch, TokenLogprobs


def openrlhf_cases() -> list[Case]:
    """OpenRLHF's models.loss."""
    from peers import alone

    theirs = alone("openrlhf.models.loss")

    def policy(ours, aggregation, title, **given):
        module = theirs.PolicyLoss(**given)

        def run(s: Sample):
            found = module(s.new, s.old, s.wide, s.mask, rollout_log_probs=s.sampler)[0]
            return of_loss(ours, s, aggregation), found

        settings = ", ".join(f"{name}={value}" for name, value in given.items())
        return Case(
            ours=title, peer="OpenRLHF", theirs=f"PolicyLoss({settings})", kind="loss", run=run
        )

    def corrected(s: Sample):
        module = theirs.PolicyLoss(is_correction_level="token", is_correction_threshold=(0.8, 1.2))
        found = module(s.new, s.old, s.wide, s.mask, rollout_log_probs=s.sampler)[0]
        plain = losses.TokenClippedSurrogateLoss()
        ours = off_policy.Corrected(plain, off_policy.TokenMask(0.8, 1.2))
        return of_loss(ours, s, TOKENS, "sampler"), found

    def value(s: Sample):
        found = theirs.ValueLoss(0.2)(s.values, s.old_values, s.returns, s.mask)
        return of_loss(ValueLoss(1.0, 0.2), s, TOKENS), found

    def sft(s: Sample):
        one = torch.ones_like(s.advantage)
        same = Sample(**{**vars(s), "advantage": one})
        return of_loss(losses.MaskedCausalLMCrossEntropyLoss(), same, TOKENS), theirs.SFTLoss()(
            s.new, s.mask
        )

    def dpo(s: Sample):
        # Rows 0 and 1 are the first pair, rows 2 and 3 the second.
        many = len(s.groups) // 2
        number = torch.arange(len(s.groups)).div(2, rounding_mode="floor")[:, None]
        sign = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(many)[:, None]
        rows = slice(0, 2 * many)
        kept = s.mask[rows].bool()
        pairs = LossBatch(
            weight=sign.expand_as(kept)[kept],
            scale=torch.full((int(kept.sum()),), 1 / many, dtype=torch.float64),
            rollout=number[rows].expand_as(kept)[kept],
            num_rollouts=many,
            attachments={REFERENCE: s.ref[rows][kept]},
        )
        lp = s.new[rows][kept]
        ours, _ = preferences.DPOLoss(0.3)(TokenLogprobs(lp, torch.zeros_like(lp)), pairs)
        sums = [(m * s.mask).sum(1)[rows] for m in (s.new, s.ref)]
        found, _, _ = theirs.DPOLoss(0.3)(*(part[i::2] for part in sums for i in (0, 1)))
        return ours, found

    def plain(ours, name, run):
        return Case(ours=ours, peer="OpenRLHF", theirs=name, kind="loss", run=run)

    clip = {"clip_eps_low": 0.2, "clip_eps_high": 0.28}
    return [
        policy(PPO, TOKENS, "TokenClippedSurrogateLoss", **clip),
        policy(DUAL, TOKENS, "the same, dual_clip", **clip, dual_clip=3.0),
        policy(PPO, SEQUENCES, "the same, sequence_mean", **clip, token_level_loss=False),
        policy(
            GSPO,
            SEQUENCES,
            "SequenceClippedSurrogateLoss",
            clip_eps_low=0.02,
            clip_eps_high=0.03,
            policy_loss_type="gspo",
        ),
        plain("Corrected(..., TokenMask)", "PolicyLoss, is_correction_level=token", corrected),
        plain("ValueLoss", "ValueLoss", value),
        plain("DPOLoss", "DPOLoss", dpo),
        plain("MaskedCausalLMCrossEntropyLoss", "SFTLoss", sft),
    ]
