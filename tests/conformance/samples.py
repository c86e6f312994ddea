"""Random batches, as our losses read them and as padded matrices."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from ludic_train.types import (
    PROXIMAL,
    REFERENCE,
    RETURNS,
    VALUES,
    LossBatch,
    TokenLogprobs,
    Trajectory,
)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Rows in groups, padded to [B, T], float64; `new` and `values` carry the gradient.

    mask: 1 at sampled tokens, of which every row has one or more. advantage: [B].
    old: log-probs of the params that began the batch; sampler, ref: of these policies.
    """

    mask: Tensor
    groups: list[int]
    rewards: Tensor
    advantage: Tensor
    new: Tensor
    old: Tensor
    sampler: Tensor
    ref: Tensor
    values: Tensor
    old_values: Tensor
    returns: Tensor

    @property
    def wide(self) -> Tensor:
        """The advantages at every token, [B, T]."""
        return self.advantage[:, None].expand_as(self.new).clone()

    def flat(self, matrix: Tensor) -> Tensor:
        """The sampled tokens of a matrix, [N]."""
        return matrix[self.mask.bool()]

    def out(self) -> TokenLogprobs:
        """The forward pass."""
        lp = self.flat(self.new)
        return TokenLogprobs(lp, torch.zeros_like(lp), self.flat(self.values))

    def batch(self, aggregation, *, behavior: str = "old") -> LossBatch:
        """The input of our losses; ratios are to the policy `behavior`."""
        rows = [
            SimpleNamespace(action_mask=m.bool().numpy(), group=str(g), rollout="")
            for m, g in zip(self.mask, self.groups, strict=True)
        ]
        scale = np.concatenate(aggregation(rows)).astype(np.float64)
        number = torch.arange(len(rows))[:, None].expand_as(self.mask)
        attached = {
            REFERENCE: self.ref,
            PROXIMAL: self.old,
            VALUES: self.old_values,
            RETURNS: self.returns,
        }
        return LossBatch(
            weight=self.flat(self.wide),
            scale=torch.from_numpy(scale),
            rollout=self.flat(number),
            num_rollouts=len(rows),
            behavior_logprobs=self.flat(getattr(self, behavior)),
            attachments={name: self.flat(matrix) for name, matrix in attached.items()},
        )

    def trajectories(self) -> list[Trajectory]:
        """One step per row, with its reward and the number of its tokens."""
        return [
            Trajectory(
                rows=(),
                rewards=np.array([float(reward)]),
                parsed=np.array([True]),
                completions=np.array([[0, int(m.sum()), 0]], np.int32),
                env_id="x",
                group=str(group),
            )
            for reward, m, group in zip(self.rewards, self.mask, self.groups, strict=True)
        ]

    def last_rewards(self) -> Tensor:
        """The rewards at the last sampled tokens, [B, T]."""
        return torch.where(self.mask.cumsum(1) == self.mask.sum(1, keepdim=True), 1.0, 0.0) * (
            self.mask * self.rewards[:, None]
        )


def sample(seed: int) -> Sample:
    """A batch: 2 to 4 groups of 2 to 4 rows of 1 to 8 tokens."""
    rng = np.random.default_rng(seed)
    size, count = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    rows, width = size * count, 8
    lengths = rng.integers(1, width + 1, rows)
    mask = torch.from_numpy((np.arange(width) < lengths[:, None]).astype(np.float64))

    def noise(scale: float) -> Tensor:
        return torch.from_numpy(rng.normal(0, scale, (rows, width)))

    old = -torch.from_numpy(rng.exponential(1.0, (rows, width)))
    # A few ratios far away, as of another kernel or another policy.
    jump = (torch.from_numpy(rng.random((rows, width))) < 0.1) * noise(1.5)
    values = noise(1.0)
    return Sample(
        mask=mask,
        groups=np.repeat(np.arange(count), size).tolist(),
        rewards=torch.from_numpy(rng.choice([0.0, 0.2, 1.0, rng.random()], rows)),
        advantage=torch.from_numpy(rng.normal(0, 1, rows)),
        new=(-(old + noise(0.2) + jump).abs()).requires_grad_(),
        old=old,
        sampler=old + noise(0.15),
        ref=old + noise(0.4),
        values=(values + noise(0.3)).requires_grad_(),
        old_values=values,
        returns=values + noise(0.5),
    )
