"""Frozen data that flows from rollouts to the loss; no logic.

A `Trajectory` is a rollout in tokens, before credit: its rows and the rewards of its steps. A
`SAWItem` is one of its rows with credit. A `LossBatch` is what a loss reads of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ludic_train.errors import LossError
from ludic_train.metrics import Metric

if TYPE_CHECKING:
    from torch import Tensor

REFERENCE = "ref_logprobs"
"""Attachment: log-probs under the reference policy, which a KL term stays close to."""

PROXIMAL = "proximal_logprobs"
"""Attachment: log-probs under the params that began the update, which ratios are clipped to."""

VALUES = "values"
"""Attachment: values under the params that began the update."""

RETURNS = "returns"
"""Attachment: returns, which the values are fitted to."""

BOOTSTRAP = "bootstrap"
"""Attachment: value of the state in which a truncated rollout ended, at its last sampled token."""

REWARDS = "rewards"
"""Attachment: reward of a step, at the last token that was sampled for it, 0 elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TopTokens:
    """A teacher's k most likely tokens at each of M places, with log-probs.

    ids: int32 [M, k], all different at one place.
    logprobs: float32 [M, k + 1], nats; the last is that of all other tokens together, so that the
        probabilities of a place add up to 1. -inf where there is no such token.
    """

    ids: NDArray[np.int32] = field(repr=False)
    logprobs: NDArray[np.float32] = field(repr=False)


# Arrays have no useful equality, so rows are compared as objects (eq=False).
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SAWItem:
    """One row of T tokens with any number of action spans; arrays are [T].

    input_ids: int32, prompts and completions as the sampler saw them.
    action_mask: bool, True where the token was sampled; never at position 0.
    weight: float32, the credit of the step the token belongs to; 0 off the mask.
    behavior_logprobs: float32 nats under the sampling distribution; 0 off the mask; None for
        data that was not sampled from a known policy.
    versions: int32, the update whose params sampled the token; -1 off the mask; None as above.
    sampling_mask: the tokens that each sampled token was drawn from, as `packed_masks` packs them;
        log-probs are renormalised over these. None where no token was left out.
    steps: int32, the step of the rollout that the token was sampled in; -1 off the mask; None for
        rows that come from no rollout.
    temperature: the one that all spans were sampled with.
    rollout: id that all rows of one rollout share, in order of play; "" for a row that is a rollout
        by itself.
    truncated: True if the rollout was cut short, so that more reward could have come.
    group: id shared with the rollouts that this one was compared with. agent: seat in the game.
    experts: int16 [T, layers, k], the experts of a mixture that each token went through when it was
        sampled from; -1 where that is unknown, as for the last token. None for rows without.
    teacher: the most likely tokens of a teacher at the places of the M sampled tokens; None for
        rows without.
    attachments: further per-token arrays that a loss reads, such as reference log-probs.

    A prompt of 2 tokens, a completion of 2 and a reward of 1, for example:

        input_ids     [ 7,  8,  5,    6  ]
        action_mask   [ F,  F,  T,    T  ]
        weight        [ 0., 0., 1.,   1. ]
        logprobs      [ 0., 0., -.7, -.2 ]
        versions      [-1, -1,  3,    3  ]
        steps         [-1, -1,  0,    0  ]
    """

    input_ids: NDArray[np.int32]
    action_mask: NDArray[np.bool_]
    weight: NDArray[np.float32]
    behavior_logprobs: NDArray[np.float32] | None = None
    sampling_mask: bytes | None = field(default=None, repr=False)
    versions: NDArray[np.int32] | None = None
    steps: NDArray[np.int32] | None = None
    temperature: float = 1.0
    rollout: str = ""
    truncated: bool = False
    group: str = ""
    agent: str = "agent"
    experts: NDArray[np.int16] | None = field(default=None, repr=False)
    teacher: TopTokens | None = None
    attachments: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trajectory:
    """A rollout in tokens: the input of filters and credit assigners.

    rows: in the order of play, with weight 0; `SAWItem.steps` says which step a token belongs to.
    rewards: float64 [S], one per step.
    parsed: bool [S], False for a step in which no action could be parsed.
    completions: int32 [C, 3], per model call: its step, its sampled tokens, and 1 if `max_tokens`
        cut the reply off in it.
    env_id, agent: the environment, and the seat in it.
    group: id shared with the rollouts that this one is compared with; "" for none.
    task: key of the task, equal for equal tasks. env_key: of the environment with its arguments.
    truncated: True if the episode was cut short.
    info: numbers, flags and short texts of the last step's info, such as "success".
    """

    rows: tuple[SAWItem, ...] = field(repr=False)
    rewards: NDArray[np.float64]
    parsed: NDArray[np.bool_]
    completions: NDArray[np.int32]
    env_id: str
    agent: str = "agent"
    group: str = ""
    task: str = ""
    env_key: str = ""
    truncated: bool = False
    info: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    @property
    def total_reward(self) -> float:
        """Undiscounted sum of the rewards."""
        return float(self.rewards.sum())

    @property
    def success(self) -> bool:
        """True if the environment counts the episode as solved."""
        return bool(self.info.get("success", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class SAWBatch:
    """Rows of one batch, and metrics of the episodes that they came from.

    items: never empty from a source. metrics: of all that was played, filtered rollouts included.
    """

    # Left out of the repr, which asyncio takes of every task's result.
    items: tuple[SAWItem, ...] = field(repr=False)
    metrics: Mapping[str, Metric] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Result of the forward pass.

    logprobs: [N] nats of the taken tokens, under the distribution that each was sampled from:
        temperature applied, and renormalised over its sampling mask; carries the gradient.
    entropy: [N] nats of these distributions; carries the gradient too. [0] if it was not computed.
    values: [N] returns that a value head expects from the states before the tokens, with gradient;
        None without one.
    top_logprobs: [N, k + 1] nats of k further tokens at each place, the teacher's most likely ones,
        and of all others together, under the same distributions; with gradient. None for rows
        without.
    top_ids: int64 [N, k], these tokens, where the model itself was to choose its most likely ones.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None = None
    top_logprobs: Tensor | None = None
    top_ids: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBatch:
    """Facts about the N action tokens of a micro-batch; no tensor carries a gradient.

    weight: [N] the credit A.
    scale: [N] the share of each token in the update: 1 / its global denominator.
    rollout: [N] int64, the rollout of the micro-batch that a token belongs to.
    num_rollouts: rollouts in the micro-batch, those without action tokens included.
    whole: False if a rollout has tokens in other micro-batches too, because it exceeds the token
        budget; sums over rollouts are refused then.
    behavior_logprobs: [N] the sampler's log-probs; None if any row was sampled without.
    lag: [N] updates between the sampling params and the current ones; None if unknown.
    version: updates made before this one, for terms that change in the course of a training.
    teacher_logprobs: [N, k + 1] nats of a teacher's k most likely tokens at each place, and of all
        others together; None if the rows came without.
    attachments: other [N] tensors by name, such as REFERENCE or PROXIMAL.

    Raises LossError where a tensor is not [N].

    A batch of one token, enough to try a loss:

    >>> import torch
    >>> from ludic_train import ReinforceLoss
    >>> one = torch.ones(1)
    >>> known = LossBatch(weight=2 * one, scale=one, rollout=torch.tensor([0]), num_rollouts=1)
    >>> ReinforceLoss()(TokenLogprobs(logprobs=-0.5 * one, entropy=one), known)
    (tensor(1.), {})
    """

    weight: Tensor
    scale: Tensor
    rollout: Tensor
    num_rollouts: int
    whole: bool = True
    behavior_logprobs: Tensor | None = None
    lag: Tensor | None = None
    version: int = 0
    teacher_logprobs: Tensor | None = None
    attachments: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {
            "scale": self.scale,
            "rollout": self.rollout,
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


def check_shape(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise LossError unless the tensor holds one number per action token, as `like` does."""
    if tensor.shape != like.shape or tensor.ndim != 1:
        raise LossError(
            f"{name} is {list(tensor.shape)} and should be one number per action token, "
            f"{list(like.shape)}"
        )
