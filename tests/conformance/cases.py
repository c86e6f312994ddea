"""Each of our formulas beside the same one of another trainer.

A case's function takes a sample and returns our number or tensor and theirs; of losses both carry
the gradient of the sample's `new` and `values`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import torch
from samples import Sample
from torch import Tensor

from ludic_train.algorithms import aggregation as share
from ludic_train.algorithms import (
    batch_credit,
    credit,
    kl,
    losses,
    off_policy,
    preferences,
    trust_region,
)
from ludic_train.algorithms.composite import CompositeLoss
from ludic_train.algorithms.value_head import ValueLoss, generalized_advantages
from ludic_train.types import REFERENCE, LossBatch, TokenLogprobs

TOKENS, SEQUENCES, GROUPS = share.token_mean, share.sequence_mean, share.prompt_mean
SUMS, CONSTANT = share.ConstantLength(1), share.ConstantLength(8)
CENTERED = credit.GroupNormalizedReturn(divide_by_std=False)
Run = Callable[[Sample], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One comparison.

    kind: "loss", of which the gradient is compared too; "gradient", of which nothing else is;
        "correction" or "advantage".
    note: where and why values differ. tolerance: largest difference.
    """

    ours: str
    peer: str
    theirs: str
    kind: str
    run: Run
    note: str = ""
    tolerance: float = 1e-5


def of_loss(loss: losses.Loss, s: Sample, aggregation, behavior: str = "old") -> Tensor:
    """Our loss of the sample."""
    return loss(s.out(), s.batch(aggregation, behavior=behavior))[0]


def of_credit(assigner: credit.CreditAssigner, s: Sample) -> Tensor:
    """Our advantages at every sampled token, [N]."""
    weights = torch.tensor([float(w[0]) for w in assigner(s.trajectories())], dtype=torch.float64)
    return s.flat(weights[:, None].expand_as(s.mask))


def of_correction(correction: off_policy.Correction, s: Sample) -> Tensor:
    """Our factors of the sampled tokens, [N]."""
    return correction(s.flat(s.old - s.sampler), s.batch(TOKENS))


def of_gae(s: Sample) -> Tensor:
    """Our advantages of gamma 0.9 and lambda 0.8, not whitened, [N]."""
    rows = zip(s.last_rewards(), s.old_values, s.mask.sum(1).int().tolist(), strict=True)
    return torch.cat(
        [
            torch.from_numpy(generalized_advantages(r[:n].numpy(), v[:n].numpy(), 0.9, 0.8))
            for r, v, n in rows
        ]
    )


def whitened(values: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1 over all tokens, as `GAE` does it."""
    return (values - values.mean()) / (values.std() + 1e-8)


PPO = losses.TokenClippedSurrogateLoss(0.2, 0.28)
DUAL = losses.TokenClippedSurrogateLoss(0.2, 0.28, 3.0)
GSPO = losses.SequenceClippedSurrogateLoss(0.02, 0.03)


def verl_cases() -> list[Case]:
    """verl's core_algos and its correction of rollouts."""
    from verl.trainer.ppo import core_algos as algos
    from verl.trainer.ppo import rollout_corr_helper as corr
    from verl.workers.config import ActorConfig, PolicyLossConfig

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

    def kl_cov(s: Sample):
        grads = []
        for coefficient in (0.5, 0.0):
            held = PolicyLossConfig("kl_cov", kl_cov_ratio=0.2, ppo_kl_coef=coefficient)
            own = config(policy_loss=held)
            loss, _ = algos.compute_policy_loss_kl_cov(
                s.old, s.new, s.wide, s.mask, "token-mean", own
            )
            grads.append(torch.autograd.grad(loss, s.new)[0])
        return s.selected(0.2), (s.flat(grads[0] - grads[1]).abs() > 1e-9).double()

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
        policy(
            "dppo_tv",
            trust_region.DPPOLoss(0.2, 0.28),
            TOKENS,
            "token-mean",
            "DPPOLoss",
            clip_ratio_c=20.0,
        ),
        policy(
            "sapo",
            trust_region.SAPOLoss(),
            SEQUENCES,
            "seq-mean-token-mean",
            "SAPOLoss",
            tau_pos=1.0,
            tau_neg=1.05,
        ),
        policy(
            "geo_mean",
            trust_region.GMPOLoss(0.2),
            SEQUENCES,
            "token-mean",
            "GMPOLoss",
            clip_ratio_high=0.2,
        ),
        plain("TopCovariance", "selection of kl_cov", "correction", kl_cov),
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
            "sapo": SimpleNamespace(tau_pos=1.0, tau_neg=1.05),
            "dppo": SimpleNamespace(dppo_type="binary_tv", delta_low=0.2, delta_high=0.28),
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
        policy("sapo_policy_loss", trust_region.SAPOLoss(), SEQUENCES, "sequence_mean", "SAPOLoss"),
        policy(
            "dppo_policy_loss",
            trust_region.DPPOLoss(0.2, 0.28, 1e6),
            TOKENS,
            "token_mean",
            "DPPOLoss",
            kind="gradient",
            note="SkyRL's value is -A r, ours and verl's -A sg(r) lp; gradients are equal",
        ),
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
            "compute_maxrl_advantage",
            credit.MeanScaledReturn(),
            "MeanScaledReturn",
            note="SkyRL adds 1e-6 to the mean: up to 1e-4 where that is small",
            tolerance=1e-4,
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


def trl_cases() -> list[Case]:
    """TRL's loss, a method of its trainers: run on an object that has nothing else."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    def trainer(s: Sample, **given):
        fake = MagicMock()
        args = {
            "use_bias_correction_kl": False,
            "delta": None,
            "sapo_temperature_pos": 1.0,
            "sapo_temperature_neg": 1.05,
        }
        fake.args = SimpleNamespace(**{**args, **given.pop("args", {})})
        settings = {
            "loss_type": "dapo",
            "importance_sampling_level": "token",
            "beta": 0.0,
            "epsilon_low": 0.2,
            "epsilon_high": 0.28,
            "top_entropy_quantile": 1.0,
            "off_policy_mask_threshold": None,
            "use_vllm": False,
            "max_completion_length": 8,
            "current_gradient_accumulation_steps": 1,
            "_entropy_bonus_enabled": False,
            "aux_loss_enabled": False,
        }
        for name, value in {**settings, **given}.items():
            setattr(fake, name, value)
        fake.model.training = False
        fake.accelerator.num_processes = 1
        fake.accelerator.gather = fake.accelerator.reduce = lambda x, **_: x
        fake._get_per_token_logps_and_entropies.return_value = (
            s.new,
            torch.zeros_like(s.new),
            None,
        )
        return fake

    def policy(ours, aggregation, title, theirs, note="", kind="loss", **given):
        def run(s: Sample):
            ids = torch.zeros_like(s.mask, dtype=torch.long)
            inputs = {
                "prompt_ids": ids,
                "prompt_mask": s.mask,
                "completion_ids": ids,
                "completion_mask": s.mask,
                "advantages": s.advantage,
                "old_per_token_logps": s.old,
                "ref_per_token_logps": s.ref,
                "num_items_in_batch": s.mask.sum(),
            }
            found = GRPOTrainer._compute_loss(trainer(s, **given), None, inputs)
            return of_loss(ours, s, aggregation), found

        return Case(ours=title, peer="TRL", theirs=theirs, kind=kind, run=run, note=note)

    unbiased = CompositeLoss((PPO, kl.UnbiasedTokenKLLoss(0.3)))
    return [
        policy(PPO, TOKENS, "TokenClippedSurrogateLoss, token_mean", "loss_type=dapo"),
        policy(PPO, SEQUENCES, "the same, sequence_mean", "loss_type=grpo", loss_type="grpo"),
        policy(PPO, CONSTANT, "the same, ConstantLength", "loss_type=dr_grpo", loss_type="dr_grpo"),
        policy(
            GSPO,
            SEQUENCES,
            "SequenceClippedSurrogateLoss",
            "importance_sampling_level=sequence",
            loss_type="grpo",
            importance_sampling_level="sequence",
            epsilon_low=0.02,
            epsilon_high=0.03,
        ),
        policy(
            losses.CISPOLoss(0.0, 1.5),
            TOKENS,
            "CISPOLoss",
            "loss_type=cispo",
            loss_type="cispo",
            epsilon_high=1.5,
        ),
        policy(trust_region.SAPOLoss(), SEQUENCES, "SAPOLoss", "loss_type=sapo", loss_type="sapo"),
        policy(
            unbiased,
            TOKENS,
            "UnbiasedTokenKLLoss",
            "use_bias_correction_kl",
            beta=0.3,
            args={"use_bias_correction_kl": True},
        ),
    ]


PEERS = {
    "verl": verl_cases,
    "SkyRL": skyrl_cases,
    "OpenRLHF": openrlhf_cases,
    "TRL": trl_cases,
}
