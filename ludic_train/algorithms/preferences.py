"""Learning from preferences: pairs of a chosen and a rejected rollout.

The rows of a pair have one `rollout` id, so that no split of a batch parts them, and weights of +1
at the tokens of the chosen rollout and -1 at those of the rejected one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ludic_gym.types import Rollout
from ludic_train.algorithms.aggregation import ConstantLength
from ludic_train.algorithms.credit import ConstantCredit
from ludic_train.algorithms.losses import (
    LossMetrics,
    attachment,
    check_positive,
    rollout_sum,
    scaled_sum,
)
from ludic_train.algorithms.presets import Parts, RLAlgorithm
from ludic_train.errors import UntrainableRollout
from ludic_train.rows import trajectory_from
from ludic_train.types import REFERENCE, LossBatch, SAWItem, TokenLogprobs


@dataclass(frozen=True, slots=True)
class DPOLoss:
    """Direct preference optimization: -log sigmoid(beta (h_chosen - h_rejected)) per pair.

    Rafailov et al. 2023, arXiv:2305.18290, eq. 7, with h = sum over tokens of (lp_t - ref_t), the
    log-ratio of a rollout to the attachment REFERENCE. Each is spread evenly over its tokens and
    meant for ConstantLength(1), the mean over pairs. Raises MissingAttachment, and LossError for a
    rollout that was cut.
    beta: nats of log-ratio are worth this much; small values let the policy move far.
    """

    beta: float = 0.1

    def __post_init__(self) -> None:
        check_positive("DPOLoss.beta", self.beta)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metrics `margin`, beta (h_chosen - h_rejected), and `preferred`."""
        distance = out.logprobs - attachment(batch, REFERENCE)
        # The weights' signs make one sum of both rollouts, which every token of the pair holds.
        margin = self.beta * rollout_sum(batch.weight * distance, batch)
        count = rollout_sum(torch.ones_like(margin), batch)
        # A pair counts once in metrics too, however long it is.
        share = 1 / count
        metrics = {
            "margin": ((margin.detach() * share).sum(), share.sum()),
            "preferred": (((margin.detach() > 0) * share).sum(), share.sum()),
        }
        # logsigmoid, because in float32 the sigmoid of -110 is 0, and the log of that -inf. Each
        # token holds the whole loss of its pair, so divided by them a pair counts once.
        return scaled_sum(-F.logsigmoid(margin) / count, batch), metrics


def preference_rows(pairs: Iterable[tuple[Rollout, Rollout]]) -> list[SAWItem]:
    """Rows of pairs of a chosen and a rejected rollout, for an `OfflineBatchSource` and `dpo`.

        source = OfflineBatchSource(preference_rows(pairs), batch_size=32)

    Rollouts need token ids; `dialog_rollout` makes them from chat messages.
    Raises UntrainableRollout as `trajectory_from` does, and for a rollout without sampled tokens.

    >>> from ludic_train import dialog_rollout, make_tokenizer
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> question = {"role": "user", "content": "2 + 3 = ?"}
    >>> chosen, rejected = (
    ...     dialog_rollout([question, {"role": "assistant", "content": reply}], tokenizer)
    ...     for reply in ("5", "6")
    ... )
    >>> rows = preference_rows([(chosen, rejected)])
    >>> [float(row.weight[-1]) for row in rows], rows[0].rollout == rows[1].rollout
    ([1.0, -1.0], True)
    """
    # Rows of several calls may meet in one update, so ids are not positions alone.
    call = secrets.token_hex(8)
    rows: list[SAWItem] = []
    for number, pair in enumerate(pairs):
        for rollout, weight in zip(pair, (1.0, -1.0), strict=True):
            sampled = trajectory_from(rollout).rows
            if not sampled:
                raise UntrainableRollout(
                    f"a rollout of {rollout.task.env_id} holds no model call, so it cannot be "
                    "preferred"
                )
            rows += [
                replace(
                    row,
                    weight=(weight * row.action_mask).astype(np.float32),
                    rollout=f"pair-{call}-{number}",
                )
                for row in sampled
            ]
    return rows


def dpo(*, beta: float = 0.1, **parts: Unpack[Parts]) -> RLAlgorithm:
    """DPO (Rafailov et al. 2023, arXiv:2305.18290), from the rows of `preference_rows`.

    Sets DPOLoss(beta) and the mean over pairs. The reference is the trainer's `reference` model, or
    with LoRA the model as it began. beta: as in DPOLoss.
    """
    return RLAlgorithm(
        name="dpo",
        # Rows bring their weights along.
        credit=ConstantCredit(),
        loss=DPOLoss(beta),
        aggregation=ConstantLength(1),
        attach=frozenset({REFERENCE}),
    ).with_parts(parts)
