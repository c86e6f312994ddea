"""Learning with a critic: a value head, advantages from its values, and what fits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms.losses import LossMetrics, attachment, scaled_sum, token_mean
from ludic_train.errors import LossError, MissingAttachment
from ludic_train.models.logprobs import VALUE_HEAD, unwrapped
from ludic_train.types import RETURNS, REWARDS, VALUES, LossBatch, SAWItem, TokenLogprobs

Array = NDArray[np.float64]


def add_value_head(model: nn.Module) -> None:
    """Give the model a linear head that maps hidden states to values; it starts at 0.

    Call it before `shard_model` and before the trainer is made.
    """
    causal_lm = unwrapped(model)
    embedding = causal_lm.get_input_embeddings().weight
    head = nn.Linear(embedding.shape[1], 1, device=embedding.device, dtype=embedding.dtype)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    causal_lm.add_module(VALUE_HEAD, head)


@dataclass(frozen=True, slots=True)
class GAE:
    """Generalised advantage estimation over the sampled tokens of a row.

    A_t = sum_k (gamma lam)^k delta_{t+k}, delta_t = r_t + gamma V_{t+1} - V_t (Schulman et al.
    2016, arXiv:1506.02438). The token after t is the next SAMPLED one: what tools and opponents
    say in between carries value and credit through. The value after the last token of a row is 0,
    so a rollout should be one row: use a context that keeps the dialog.
    whiten: advantages of the batch get mean 0 and standard deviation 1 (ddof 1).
    """

    gamma: float = 1.0
    lam: float = 0.95
    whiten: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1 or not 0 <= self.lam <= 1:
            raise ConfigError(f"GAE has gamma={self.gamma}, lam={self.lam}; both are in [0, 1]")

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with advantages as weights and RETURNS attached.

        Reads the attachments REWARDS and VALUES; raises MissingAttachment.
        """
        found = [self._of_row(item) for item in items]
        everything = np.concatenate([advantage for advantage, _ in found])
        mean, std = 0.0, 1.0
        if self.whiten and len(everything) > 1:
            mean, std = float(everything.mean()), float(everything.std(ddof=1)) + 1e-8
        return [
            _with_advantages(item, (advantage - mean) / std, goal)
            for item, (advantage, goal) in zip(items, found, strict=True)
        ]

    def _of_row(self, item: SAWItem) -> tuple[Array, Array]:
        for name in (REWARDS, VALUES):
            if name not in item.attachments:
                raise MissingAttachment(
                    f"GAE reads {name!r} and a row has {sorted(item.attachments)} attached; use "
                    "make_ppo, and a model with a value head (add_value_head)"
                )
        rewards, values = (
            item.attachments[name][item.action_mask].astype(np.float64)
            for name in (REWARDS, VALUES)
        )
        advantages = generalized_advantages(rewards, values, self.gamma, self.lam)
        return advantages, advantages + values


def generalized_advantages(rewards: Array, values: Array, gamma: float, lam: float) -> Array:
    """A_t for each of T consecutive decisions; rewards and values are [T], V_T is 0."""
    advantages = np.zeros_like(rewards)
    value_after, advantage_after = 0.0, 0.0
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
        near = old + (out.values - old).clamp(-self.clip, self.clip)
        error = (out.values - goal).square()
        per_token = torch.maximum(error, (near - goal).square()) * (self.coefficient / 2)
        metrics = {"value": token_mean(out.values), "value_error": token_mean(error)}
        return scaled_sum(per_token, batch), metrics


def _with_advantages(item: SAWItem, advantages: Array, goal: Array) -> SAWItem:
    weight = np.zeros(len(item.input_ids), np.float32)
    returns = np.zeros(len(item.input_ids), np.float32)
    weight[item.action_mask], returns[item.action_mask] = advantages, goal
    return replace(item, weight=weight, attachments={**item.attachments, RETURNS: returns})
