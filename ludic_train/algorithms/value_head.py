"""Learning with a critic: a value head, advantages from its values, and its loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.aggregation import at_sampled, refined_by_rollout, with_weight
from ludic_train.algorithms.losses import LossMetrics, attachment, scaled_sum, token_stat
from ludic_train.errors import LossError, MissingAttachment
from ludic_train.models.modules import VALUE_HEAD, unwrapped
from ludic_train.types import BOOTSTRAP, RETURNS, REWARDS, VALUES, LossBatch, SAWItem, TokenLogprobs

Array = NDArray[np.float64]


def add_value_head(model: nn.Module, device: str | None = None) -> None:
    """Give the model a linear head that maps hidden states to values, in float32; it starts at 0.

    device: of the head; that of the model if left out.
    Call it before `shard_model` and before the trainer is made.

    >>> from ludic_train import make_tiny_model, make_tokenizer
    >>> model = make_tiny_model(make_tokenizer(["2 + 3 = 5"]))
    >>> add_value_head(model)
    >>> [tuple(p.shape) for name, p in model.named_parameters() if VALUE_HEAD in name]
    [(1, 64), (1,)]
    """
    causal_lm = unwrapped(model)
    embedding = causal_lm.get_input_embeddings().weight
    head = nn.Linear(embedding.shape[1], 1, device=device or embedding.device, dtype=torch.float32)
    # Advantages of the first update are plain returns then, and no random baseline moves them.
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    causal_lm.add_module(VALUE_HEAD, head)


@dataclass(frozen=True, slots=True)
class GAE:
    """Generalised advantage estimation over the sampled tokens of a rollout.

    A_t = sum_k (gamma lam)^k delta_{t+k}, delta_t = r_t + gamma V_{t+1} - V_t (Schulman et al.
    2016, arXiv:1506.02438). The token after t is the next SAMPLED one, in the next row where the
    context rewrote history: texts of tools and opponents in between carry value and credit
    through. After the last token the value is 0 where the episode ended, and the value of the state
    that it ended in (BOOTSTRAP) where it was truncated.
    whiten: advantages of the batch get mean 0 and standard deviation 1 (ddof 1).
    gamma: discount per token. lam: 1 trusts rewards alone, 0 the values alone.
    """

    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1 or not 0 <= self.lam <= 1:
            raise ConfigError(f"GAE has gamma={self.gamma}, lam={self.lam}; both are in [0, 1]")

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with advantages as weights and RETURNS attached.

        Reads the attachments REWARDS, VALUES and, of truncated rollouts, BOOTSTRAP; raises
        MissingAttachment.
        """
        estimated = refined_by_rollout(items, self._estimated)
        return whitened(estimated) if self.whiten else estimated

    def _estimated(self, rows: Sequence[SAWItem]) -> list[SAWItem]:
        """The rows of one rollout with advantages as weights and RETURNS attached."""
        # All rows at once, so that the last token of a row sees the value at the start of the next.
        rewards, values = sampled_values(rows, REWARDS), sampled_values(rows, VALUES)
        after = float(sampled_values(rows[-1:], BOOTSTRAP).sum()) if rows[-1].truncated else 0.0
        advantages = generalized_advantages(rewards, values, self.gamma, self.lam, after)
        ends = np.cumsum([np.count_nonzero(row.action_mask) for row in rows])[:-1]
        return [
            replace(
                with_weight(row, advantage),
                attachments={**row.attachments, RETURNS: at_sampled(row, goal)},
            )
            for row, advantage, goal in zip(
                rows, np.split(advantages, ends), np.split(advantages + values, ends), strict=True
            )
        ]


def whitened(items: Sequence[SAWItem]) -> list[SAWItem]:
    """The items with weights of mean 0 and standard deviation 1 (ddof 1) over all tokens."""
    # Over the batch: within a rollout of good actions, whitening would punish half of them.
    everything = np.concatenate([item.weight[item.action_mask] for item in items])
    if len(everything) < 2:
        return list(items)
    mean = everything.mean(dtype=np.float64)
    std = everything.std(ddof=1, dtype=np.float64) + 1e-8
    return [with_weight(item, (item.weight[item.action_mask] - mean) / std) for item in items]


def sampled_values(rows: Sequence[SAWItem], name: str) -> Array:
    """An attachment at the sampled tokens of a rollout's rows, float64."""
    for row in rows:
        if name not in row.attachments:
            raise MissingAttachment(
                f"GAE reads {name!r} and a row has {sorted(row.attachments)} attached; use the "
                "algorithm ppo, and a model with a value head (add_value_head)"
            )
    parts = [row.attachments[name][row.action_mask] for row in rows]
    return np.concatenate(parts).astype(np.float64)


def generalized_advantages(
    rewards: Array, values: Array, gamma: float, lam: float, value_after: float = 0.0
) -> Array:
    """A_t for each of T consecutive decisions; rewards and values are [T], `value_after` is V_T."""
    advantages = np.zeros_like(rewards)
    advantage_after = 0.0
    # From the end, so that each advantage takes one step from the one after it.
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * value_after - values[t]
        advantage_after = delta + gamma * lam * advantage_after
        advantages[t], value_after = advantage_after, values[t]
    return advantages


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """Fits values to returns without moving far at once.

    l_t = coefficient / 2 * max((v - R)^2, (clip(v, V - clip, V + clip) - R)^2), V the values of
    the params that began the batch (Schulman et al. 2017, arXiv:1707.06347). Reads the attachments
    VALUES and RETURNS; raises MissingAttachment, and LossError for a model without a value head.
    coefficient: weight beside the policy's loss. clip: largest move from V that is rewarded.
    """

    coefficient: float = 0.5
    clip: float = 0.2

    def __post_init__(self) -> None:
        if not self.coefficient > 0 or not self.clip > 0:
            raise ConfigError(
                f"ValueLoss has coefficient={self.coefficient}, clip={self.clip}; both must be "
                "positive"
            )

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[torch.Tensor, LossMetrics]:
        """The summed loss; metrics `value` and `value_error`, the squared distance to returns."""
        if out.values is None:
            raise LossError("ValueLoss needs values: call add_value_head(model) first")
        old, goal = attachment(batch, VALUES), attachment(batch, RETURNS)
        # The larger error of the two, so that the clip never makes a distant value look close.
        near = old + (out.values - old).clamp(-self.clip, self.clip)
        error = (out.values - goal).square()
        per_token = torch.maximum(error, (near - goal).square()) * (self.coefficient / 2)
        metrics = {"value": token_stat(out.values), "value_error": token_stat(error)}
        return scaled_sum(per_token, batch), metrics
