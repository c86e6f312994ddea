"""Cases of TRL's loss, a method of its trainers."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
from cases import CONSTANT, GSPO, PPO, SEQUENCES, TOKENS, Case, of_loss
from samples import Sample

from ludic_train.algorithms import kl, losses
from ludic_train.algorithms.losses import CompositeLoss


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
        policy(
            unbiased,
            TOKENS,
            "UnbiasedTokenKLLoss",
            "use_bias_correction_kl",
            beta=0.3,
            args={"use_bias_correction_kl": True},
        ),
    ]
