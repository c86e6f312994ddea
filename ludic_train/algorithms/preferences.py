"""Learning from preferences: pairs of rollouts, or single ones that are liked or disliked.

The rows of a pair have one `rollout` id, so that no split of a batch parts them, and weights of +1
at the tokens of the chosen rollout and -1 at those of the rejected one. With
h = sum over tokens of (lp_t - ref_t), the log-ratio of a rollout to the reference, the losses are
functions of h; each is spread evenly over its tokens and meant for ConstantLength(1), the mean over
pairs or rollouts. They read the attachment REFERENCE, and raise MissingAttachment without it and
LossError for a rollout that was cut.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ludic_gym.errors import ConfigError
from ludic_gym.types import Rollout
from ludic_train.algorithms.aggregation import ConstantLength, by_sequence
from ludic_train.algorithms.credit import ConstantCredit
from ludic_train.algorithms.losses import (
    LossMetrics,
    attachment,
    check_positive,
    rollout_sum,
    scaled_sum,
    token_stat,
)
from ludic_train.algorithms.presets import Parts, RLAlgorithm
from ludic_train.errors import MissingAttachment, UntrainableRollout
from ludic_train.rows import trajectory_from
from ludic_train.types import KL_BASELINE, PROXIMAL, REFERENCE, LossBatch, SAWItem, TokenLogprobs


@dataclass(frozen=True, slots=True)
class DPOLoss:
    """Direct preference optimization: -log sigmoid(beta (h_chosen - h_rejected)) per pair.

    Rafailov et al. 2023, arXiv:2305.18290, eq. 7.
    beta: nats of log-ratio are worth this much; small values let the policy move far.

    The chosen token is 1 nat above the reference and the rejected one 1 below, a margin of 0.5 * 2:

    >>> batch = LossBatch(
    ...     weight=torch.tensor([1.0, -1.0]),
    ...     scale=torch.ones(2),
    ...     rollout=torch.tensor([0, 0]),
    ...     num_rollouts=1,
    ...     attachments={REFERENCE: torch.tensor([-2.0, -2.0])},
    ... )
    >>> out = TokenLogprobs(logprobs=torch.tensor([-1.0, -3.0]), entropy=torch.zeros(2))
    >>> loss, metrics = DPOLoss(beta=0.5)(out, batch)
    >>> loss, metrics["margin"]
    (tensor(0.3133), (tensor(1.), tensor(1.)))
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


@dataclass(frozen=True, slots=True)
class KTOLoss:
    """Kahneman-Tversky optimization: |A| (1 - sigmoid(+-beta (h - z))) per rollout.

    Ethayarajh et al. 2024, arXiv:2402.01306, eq. 8: the sign is that of the weight, so rollouts
    with positive ones become likelier than z and others less likely; their sizes are the paper's
    lambdas. z is the attachment KL_BASELINE of `KTOBaseline`; MissingAttachment without it.
    beta: as in `DPOLoss`.
    """

    beta: float = 0.1

    def __post_init__(self) -> None:
        check_positive("KTOLoss.beta", self.beta)

    def __call__(self, out: TokenLogprobs, batch: LossBatch) -> tuple[Tensor, LossMetrics]:
        """The summed loss; metric `kl_baseline`, in nats per rollout."""
        total = rollout_sum(out.logprobs - attachment(batch, REFERENCE), batch)
        baseline = attachment(batch, KL_BASELINE)
        pushed = torch.sigmoid(batch.weight.sign() * self.beta * (total - baseline))
        count = rollout_sum(torch.ones_like(total), batch)
        per_token = batch.weight.abs() * (1 - pushed) / count
        return scaled_sum(per_token, batch), {"kl_baseline": token_stat(baseline)}


@dataclass(frozen=True, slots=True)
class KTOBaseline:
    """Attaches z, the distance to the reference: max(0, mean of h over the rollouts of the batch).

    Under the params that begin the batch, without gradient. The paper pairs prompts with other
    completions than their own; these are the batch's own, which need no further forward pass.
    For an algorithm's `refine`, with PROXIMAL and REFERENCE among its attachments.
    """

    def __call__(self, items: Sequence[SAWItem]) -> list[SAWItem]:
        """The items with KL_BASELINE attached. Raises MissingAttachment."""
        for item in items:
            if not {PROXIMAL, REFERENCE} <= item.attachments.keys():
                raise MissingAttachment(
                    f"KTOBaseline reads {PROXIMAL!r} and {REFERENCE!r}, and a row has "
                    f"{sorted(item.attachments)} attached; use the algorithm kto"
                )
        ratios = [
            sum(
                float((i.attachments[PROXIMAL] - i.attachments[REFERENCE])[i.action_mask].sum())
                for i in (items[k] for k in rows)
            )
            for rows in by_sequence(items)
        ]
        # A divergence is not negative; its estimate from a few rollouts can be.
        baseline = max(0.0, float(np.mean(ratios))) if ratios else 0.0
        return [
            replace(
                item,
                attachments={
                    **item.attachments,
                    KL_BASELINE: (baseline * item.action_mask).astype(np.float32),
                },
            )
            for item in items
        ]


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
    return [
        _weighted(row, weight, f"pair-{call}-{number}")
        for number, pair in enumerate(pairs)
        for rollout, weight in zip(pair, (1.0, -1.0), strict=True)
        for row in _rows(rollout)
    ]


def liked_rows(
    rollouts: Iterable[tuple[Rollout, bool]], *, liked: float = 1.0, disliked: float = 1.0
) -> list[SAWItem]:
    """Rows of rollouts that are liked (True) or not, for an `OfflineBatchSource` and `kto`.

    liked, disliked: their weights in the loss; set them so that both kinds count about the same.
    Raises ConfigError for weights that are not positive, and what `preference_rows` raises.

    >>> from ludic_train import dialog_rollout, make_tokenizer
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> dialog = [{"role": "user", "content": "2+3"}, {"role": "assistant", "content": "6"}]
    >>> (row,) = liked_rows([(dialog_rollout(dialog, tokenizer), False)], disliked=0.5)
    >>> row.weight[row.action_mask].tolist()
    [-0.5, -0.5]
    """
    if not liked > 0 or not disliked > 0:
        raise ConfigError(f"liked={liked}, disliked={disliked}; both weights must be positive")
    call = secrets.token_hex(8)
    return [
        _weighted(row, liked if good else -disliked, f"rollout-{call}-{number}")
        for number, (rollout, good) in enumerate(rollouts)
        for row in _rows(rollout)
    ]


def dpo(*, beta: float = 0.1, **parts: Unpack[Parts]) -> RLAlgorithm:
    """DPO (Rafailov et al. 2023, arXiv:2305.18290), from the rows of `preference_rows`.

    Sets DPOLoss(beta) and the mean over pairs. The reference is the trainer's `reference` model, or
    with LoRA the model without its adapter. beta: as in DPOLoss.
    """
    return RLAlgorithm(
        name="dpo",
        # Rows bring their weights along.
        credit=ConstantCredit(),
        loss=DPOLoss(beta),
        aggregation=ConstantLength(1),
        attach=frozenset({REFERENCE}),
    ).with_parts(parts)


def kto(*, beta: float = 0.1, **parts: Unpack[Parts]) -> RLAlgorithm:
    """KTO (Ethayarajh et al. 2024, arXiv:2402.01306), from the rows of `liked_rows`.

    Sets KTOLoss(beta), KTOBaseline and the mean over rollouts; the reference is as in `dpo`.
    beta: as in DPOLoss.
    """
    usual = dpo(loss=KTOLoss(beta), refine=KTOBaseline())
    return usual.with_parts({"name": "kto", "attach": frozenset({REFERENCE, PROXIMAL}), **parts})


def _rows(rollout: Rollout) -> Sequence[SAWItem]:
    """Rows of one rollout. Raises UntrainableRollout for one that says nothing."""
    rows = trajectory_from(rollout).rows
    if not rows:
        raise UntrainableRollout(
            f"a rollout of {rollout.task.env_id} holds no model call, so it cannot be preferred"
        )
    return rows


def _weighted(row: SAWItem, weight: float, name: str) -> SAWItem:
    """The row with one weight at its sampled tokens, under the name of a pair or rollout."""
    return replace(row, weight=(weight * row.action_mask).astype(np.float32), rollout=name)
