"""Frozen data that flows from rollouts to the loss; no logic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ludic_train.errors import LossError
from ludic_train.metrics import Metric


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What the forward pass gives.

    logprobs: [N] nats of the taken tokens, temperature applied; carries the gradient.
    entropy: [N] nats of the distributions they were taken from; carries the gradient too.
    values: [N] what a value head expects to be earned from the states before the tokens, with
        gradient; None without one.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBatch:
    """What is known of the N action tokens of a micro-batch; no tensor carries a gradient.

    weight: [N] the credit A.
    scale: [N] the share of each token in the update: 1 / its global denominator.
    row: [N] int64, nondecreasing: the row of the micro-batch that a token belongs to.
    num_rows: rows in the micro-batch, those without action tokens included.
    behavior_logprobs: [N] the sampler's log-probs; None if any row was sampled without.
    lag: [N] updates between the sampling params and the current ones; None if unknown.
    attachments: other [N] tensors by name, such as REFERENCE or PROXIMAL.

    Raises LossError where a tensor is not [N].
    """

    weight: Tensor
    scale: Tensor
    row: Tensor
    num_rows: int
    behavior_logprobs: Tensor | None = None
    lag: Tensor | None = None
    attachments: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {
            "scale": self.scale,
            "row": self.row,
            "behavior_logprobs": self.behavior_logprobs,
            "lag": self.lag,
            **self.attachments,
        }
        for name, tensor in named.items():
            if tensor is not None:
                check_shape(name, tensor, self.weight)

    def with_attachment(self, name: str, values: Tensor) -> LossBatch:
        """The batch with [N] `values` attached under a name."""
        return replace(self, attachments={**self.attachments, name: values})


# An attachment: log-probs under the reference policy, which a KL term stays close to.
REFERENCE = "ref_logprobs"

# An attachment: log-probs under the params that began the update, which ratios are clipped to.
PROXIMAL = "proximal_logprobs"

# Attachments: values of the params that began the update, and what they are to be fitted to.
VALUES, RETURNS = "values", "returns"

# An attachment: what a step earned, at the last token that was sampled for it, 0 elsewhere.
REWARDS = "rewards"


def check_shape(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise LossError unless the tensor holds one number per action token, as `like` does."""
    if tensor.shape != like.shape or tensor.ndim != 1:
        raise LossError(
            f"{name} is {list(tensor.shape)} and should be one number per action token, "
            f"{list(like.shape)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SAWItem:
    """One row of T tokens with any number of action spans; all arrays are [T].

    input_ids: int32, prompts and completions as the sampler saw them.
    action_mask: bool, True where the token was sampled; never at position 0.
    weight: float32, the credit of the step the token belongs to; 0 off the mask.
    behavior_logprobs: float32 nats under the sampling distribution; 0 off the mask; None for
        data that was not sampled from a known policy.
    versions: int32, the update whose params sampled the token; -1 off the mask; None as above.
    temperature: the one that all spans were sampled with.
    attachments: further per-token arrays that a loss asks for, such as reference log-probs.
    """

    input_ids: NDArray[np.int32]
    action_mask: NDArray[np.bool_]
    weight: NDArray[np.float32]
    behavior_logprobs: NDArray[np.float32] | None = None
    versions: NDArray[np.int32] | None = None
    temperature: float = 1.0
    group: str = ""
    agent: str = "agent"
    attachments: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SAWBatch:
    """The rows of one batch, and what is worth logging about the episodes they came from."""

    # Left out of the repr, which asyncio takes of every task's result.
    items: tuple[SAWItem, ...] = field(repr=False)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
