"""Each of our formulas beside the same one of another trainer.

A case's function takes a sample and returns our number or tensor and theirs; of losses both carry
the gradient of the sample's `new` and `values`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from samples import Sample
from torch import Tensor

from ludic_train.algorithms import aggregation as share
from ludic_train.algorithms import credit, losses, off_policy
from ludic_train.algorithms.value_head import generalized_advantages

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
