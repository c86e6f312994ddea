"""KL divergence to another model: a reference to stay close to, or a teacher to learn from.

All terms but `TopKDistillationLoss` read the attachment REFERENCE; d_t = lp_t - ref_t. The
estimator k1 = d is no loss here: as one its expected gradient is zero; as a reward it is right, see
`KLReward`. k3 alone is no loss either: its gradient is not that of the divergence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import refined_by_rollout, with_weight
from ludic_train.algorithms.losses import (
    LossMetrics,
    attachment,
    bounded,
    check_positive,
    k3,
    log_ratio,
    scaled_sum,
    token_stat,
)
from ludic_train.errors import LossError, MissingAttachment, MissingLogprobs
from ludic_train.types import REFERENCE, LossBatch, SAWItem, TokenLogprobs

# Log-prob in place of that of what has no probability: its exponential is 0, and 0 * -inf is NaN.
IMPOSSIBLE = -110.0


@dataclass(frozen=True, slots=True)
class TokenKLLoss:
    """The estimator k2: l_t = coefficient * d_t^2 / 2.

    On policy its expected gradient is that of KL(policy || reference) of each token given the
    prefixes (Schulman 2020, http://joschu.net/blog/kl-approx.html): a token is not charged for the
    prefixes that it leads to, as it is by `KLReward`. Raises MissingAttachment.
    coefficient: weight of the divergence beside the other terms of a loss.
    """

    coefficient: float = 1e-3

    def __post_init__(self) -> None:
        check_positive("TokenKLLoss.coefficient", self.coefficient)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `reference_kl`, in nats per token, by k3."""
        difference = _difference(out, batch)
        return scaled_sum(self.coefficient * difference.square() / 2, batch), _kl(difference)


@dataclass(frozen=True, slots=True)
class UnbiasedTokenKLLoss:
    """The estimator k3 under importance sampling: l_t = coefficient * r_t (exp(-d_t) + d_t - 1).

    The gradient goes through the ratio r_t to the sampler too, which makes it that of
    KL(policy || reference) of each token given the prefixes, off policy as well (DeepSeek-V3.2,
    arXiv:2512.02556); the prefixes are those of the sampler. Raises MissingAttachment and
    MissingLogprobs.
    coefficient: weight of the divergence beside the other terms of a loss.
    max_ratio: largest importance weight; one token beyond it would outweigh all others.
    """

    coefficient: float = 1e-3
    max_ratio: float = 10.0

    def __post_init__(self) -> None:
        check_positive("UnbiasedTokenKLLoss.coefficient", self.coefficient)
        check_positive("UnbiasedTokenKLLoss.max_ratio", self.max_ratio)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `reference_kl`, in nats per token, by k3."""
        difference = _difference(out, batch)
        # The ratio keeps its gradient here: it is what makes k3's gradient that of the divergence.
        ratio = torch.exp(log_ratio(out, batch))
        # By a factor and not by a clamp, which would have no gradient there.
        ratio = ratio * (self.max_ratio / ratio.detach()).clamp(max=1.0)
        per_token = ratio * k3(-difference)
        return scaled_sum(self.coefficient * per_token, batch), _kl(difference)


@dataclass(frozen=True, slots=True)
class DistillationLoss:
    """Reverse KL to a teacher: l_t = sg(min(r_t, max_ratio) (lp_t - teacher_t)) * lp_t.

    On policy its expected gradient is that of KL(student || teacher) given the prefixes (Gu et al.
    2023, arXiv:2306.08543; Agarwal et al. 2023, arXiv:2306.13649). The teacher's log-probs are the
    attachment REFERENCE. Raises MissingAttachment and MissingLogprobs.
    coefficient: factor of the whole loss. max_ratio: largest importance weight, at least 1.
    """

    coefficient: float = 1.0
    max_ratio: float = 2.0

    def __post_init__(self) -> None:
        # By `not`, because a comparison with nan is False.
        if not self.coefficient > 0 or not self.max_ratio >= 1:
            raise ConfigError(
                f"DistillationLoss has coefficient={self.coefficient}, max_ratio={self.max_ratio}; "
                "the first must be positive, the second at least 1"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `teacher_kl`, in nats per token, by k3."""
        # Without a gradient: the distance is the reward of a token, and lp_t is what learns.
        distance = _difference(out, batch).detach()
        # Clamped from above alone: a ratio near 0 cannot make a gradient large.
        ratio = torch.exp(log_ratio(out, batch)).detach().clamp(max=self.max_ratio)
        per_token = self.coefficient * ratio * distance * out.logprobs
        return scaled_sum(per_token, batch), {"teacher_kl": token_stat(k3(-distance))}


@dataclass(frozen=True, slots=True)
class TopKDistillationLoss:
    """Divergence from a teacher, over its k most likely tokens and all others as one outcome.

    With t and s the teacher's and the student's probabilities of these k + 1 outcomes, and
    m = beta t + (1 - beta) s (Agarwal et al. 2023, arXiv:2306.13649):

        beta = 0        l_t = KL(t || s), forward: the student covers all that the teacher may do
        beta = 1        l_t = KL(s || t), reverse: it keeps to what the teacher would do
        0 < beta < 1    l_t = beta KL(t || m) + (1 - beta) KL(s || m), the generalised JSD

    Never negative, at most the divergence over the whole vocabulary, and equal to it where k is its
    size. Its gradient is exact for each token given a prefix from any sampler, so it needs no
    importance weights. Raises MissingAttachment where the rows have no tokens of a teacher.
    beta: in [0, 1]; at 1 / 2 a token's loss is at most log 2, and near 0 and 1 it vanishes.
    """

    beta: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise ConfigError(
                f"TopKDistillationLoss.beta is {self.beta}; it is in [0, 1], 0 for the forward KL "
                "and 1 for the reverse KL"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metrics `teacher_divergence`, nats per token, and `teacher_rest`.

        The second is the teacher's probability of all but its k tokens.
        """
        if out.top_logprobs is None or batch.teacher_logprobs is None:
            raise MissingAttachment(
                "TopKDistillationLoss reads a teacher's most likely tokens and the rows have none; "
                "use the preset top_k_distillation, or set the algorithm's teacher_top_k"
            )
        if out.top_logprobs.shape != batch.teacher_logprobs.shape:
            raise LossError(
                f"the student's log-probs of a teacher's tokens are {list(out.top_logprobs.shape)} "
                f"and the teacher's {list(batch.teacher_logprobs.shape)}"
            )
        student, teacher = _possible(out.top_logprobs), _possible(batch.teacher_logprobs)
        if self.beta in (0, 1):
            # At the ends the mixture is one of the two, which makes the general formula 0; and
            # math.log raises for 0.
            pair = (student, teacher) if self.beta else (teacher, student)
            per_token = _divergence(*pair)
        else:
            beta = self.beta
            # In logs: exponentials of very small log-probs are 0, and the log of that is -inf.
            mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
            of_teacher, of_student = (_divergence(p, mixture) for p in (teacher, student))
            per_token = beta * of_teacher + (1 - beta) * of_student
        return scaled_sum(per_token, batch), {
            "teacher_divergence": token_stat(per_token),
            "teacher_rest": token_stat(teacher[:, -1].exp()),
        }


@dataclass(frozen=True, slots=True)
class KLReward:
    """Penalty in the credit: each token's weight less coefficient * (d_t + d_{t+1} + ...).

    The estimator k1 where it is unbiased (Ouyang et al. 2022, arXiv:2203.02155): d_t is that of
    the sampler, and a token is charged for all that are sampled after it in its rollout, in later
    rows too. On policy the expected gradient is that of the divergence of whole rollouts, and not
    only given the prefixes. For an algorithm's `refine`, with REFERENCE among its attachments:

        rloo(attach=frozenset({REFERENCE}), refine=KLReward(0.01))
    coefficient: reward that a nat of distance from the reference costs.
    """

    coefficient: float = 1e-3

    def __post_init__(self) -> None:
        check_positive("KLReward.coefficient", self.coefficient)

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with lower weights. Raises MissingAttachment and MissingLogprobs."""
        return refined_by_rollout(items, self._penalized)

    def _penalized(self, rows: Sequence[SAWItem]) -> list[SAWItem]:
        differences: list[NDArray[np.float32]] = []
        for row in rows:
            if REFERENCE not in row.attachments:
                names = sorted(row.attachments) or "nothing"
                raise MissingAttachment(
                    f"KLReward reads {REFERENCE!r} and a row has {names} attached"
                )
            if row.behavior_logprobs is None:
                raise MissingLogprobs(
                    "KLReward reads the sampler's log-probs and a row has none; sample with a "
                    "client that returns them, or use TokenKLLoss"
                )
            difference = row.behavior_logprobs - row.attachments[REFERENCE]
            differences.append(np.asarray(difference[row.action_mask], np.float32))
        flat = np.concatenate(differences)
        # Across the rows of a rollout, because a token influences the later rows too.
        # float64: sums over thousands of tokens, of which the last are the smallest.
        still_to_come = np.cumsum(flat[::-1].astype(np.float64))[::-1]
        # Without the last sum, at which numpy would split off an empty part that no row takes.
        penalties = np.split(
            self.coefficient * still_to_come, np.cumsum([len(d) for d in differences])[:-1]
        )
        return [
            with_weight(row, row.weight[row.action_mask] - penalty)
            for row, penalty in zip(rows, penalties, strict=True)
        ]


def _difference(out: TokenLogprobs, batch: LossBatch) -> Tensor:
    """d_t within +-20, [N], with the gradient of lp_t."""
    return bounded(out.logprobs - attachment(batch, REFERENCE))


def _possible(logprobs: Tensor) -> Tensor:
    return logprobs.masked_fill(logprobs == -torch.inf, IMPOSSIBLE)


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of log-probs [N, k + 1], nats [N]."""
    return (p.exp() * (p - q)).sum(-1)


def _kl(difference: Tensor) -> LossMetrics:
    # By k3, which is never negative: k1 and k2 would report noise around the same mean.
    return {"reference_kl": token_stat(k3(-difference))}
