"""On-policy distillation: a student's own samples, judged token by token by a teacher."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.kl import k3
from ludic_train.algorithms.losses import (
    MAX_LOG_RATIO,
    LossMetrics,
    attachment,
    log_ratio,
    scaled_sum,
    token_stat,
)
from ludic_train.types import REFERENCE, LossBatch, TokenLogprobs


@dataclass(frozen=True, slots=True)
class DistillationLoss:
    """Reverse KL to a teacher: l_t = sg(min(r_t, max_ratio) (lp_t - teacher_t)) * lp_t.

    On policy its expected gradient is that of KL(student || teacher) given the prefixes (Gu et al.
    2023, arXiv:2306.08543; Agarwal et al. 2023, arXiv:2306.13649). The teacher's log-probs are the
    attachment REFERENCE. Raises MissingAttachment and MissingLogprobs.
    """

    coefficient: float = 1.0
    max_ratio: float = 2.0

    def __post_init__(self) -> None:
        if not self.coefficient > 0 or not self.max_ratio >= 1:
            raise ConfigError(
                f"DistillationLoss has coefficient={self.coefficient}, max_ratio={self.max_ratio}; "
                "the first must be positive, the second at least 1"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `teacher_kl`, in nats per token, by k3."""
        known = out.logprobs.detach()
        distance = (known - attachment(batch, REFERENCE)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = torch.exp(log_ratio(out, batch)).detach().clamp(max=self.max_ratio)
        per_token = self.coefficient * ratio * distance * out.logprobs
        return scaled_sum(per_token, batch), {"teacher_kl": token_stat(k3(-distance))}
