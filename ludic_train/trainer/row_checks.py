"""Checks of rows before an update: rows made by hand, or by a sampler at fault, can be anything."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ludic_train.errors import UntrainableRollout
from ludic_train.types import SAWItem

# The highest log-prob, 0, with room for rounding.
MOST_LOGPROB = 1e-3


def check_forms(items: Sequence[SAWItem], vocabulary: int) -> None:
    """Raise UntrainableRollout for rows that a model of so many tokens would misread, or not read.

    The logits that predict a token stand one position before it: for a first token there are none,
    and what stands at -1 is of another token. A mask of numbers would be taken for positions.
    """
    for number, item in enumerate(items):
        ids, mask = item.input_ids, item.action_mask
        where = f"row {number} of {len(items)}, of group {item.group!r},"
        streams = {"action_mask": mask, "weight": item.weight, "versions": item.versions}
        streams |= {"behavior_logprobs": item.behavior_logprobs, "steps": item.steps}
        for name, stream in (streams | dict(item.attachments)).items():
            if stream is not None and stream.shape != (len(ids),):
                raise UntrainableRollout(
                    f"{where} has {name} of shape {list(stream.shape)} for {len(ids)} tokens"
                )
        if mask.dtype != np.bool_:
            raise UntrainableRollout(
                f"{where} has an action_mask of {mask.dtype}; make it bool, as by mask.astype(bool)"
            )
        if mask[:1].any():
            raise UntrainableRollout(
                f"{where} has True at position 0 of its action_mask: nothing predicts a first "
                "token; set it to False"
            )
        if len(ids) and not 0 <= ids.min() <= ids.max() < vocabulary:
            raise UntrainableRollout(
                f"{where} has tokens {ids.min()} to {ids.max()}, and the model's vocabulary has "
                f"{vocabulary}: were they made with another tokenizer?"
            )


def check_finite(item: SAWItem) -> None:
    """Raise UntrainableRollout for a number of a sampled token that is not finite."""
    streams = {"weight": item.weight, "behavior_logprobs": item.behavior_logprobs}
    for name, stream in (streams | dict(item.attachments)).items():
        if stream is None or np.isfinite(stream[item.action_mask]).all():
            continue
        (position, *_) = np.flatnonzero(item.action_mask & ~np.isfinite(stream))
        raise UntrainableRollout(
            f"{name} of token {position} is {stream[position]}, in a row of group {item.group!r}, "
            f"rollout {item.rollout!r}, agent {item.agent!r}: a gradient of it would be of no use; "
            "find what made this number, such as a reward or a sampler"
        )
    if item.teacher is not None and not (item.teacher.logprobs <= MOST_LOGPROB).all():
        raise UntrainableRollout(
            f"a teacher gave the log-prob {item.teacher.logprobs.max()}, in a row of group "
            f"{item.group!r}; log-probs are at most 0"
        )
    if not 0 < item.temperature < math.inf:
        raise UntrainableRollout(
            f"temperature={item.temperature} of a row of group {item.group!r}: log-probs are of "
            "logits divided by it, so it is above 0 and finite"
        )
