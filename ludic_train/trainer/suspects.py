"""Groups whose log-probs are not those of the params that they name, told from groups whose are."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from ludic_train.algorithms.losses import bounded, k3
from ludic_train.trainer.config import Execution, TrainerConfig
from ludic_train.trainer.prepare import scored
from ludic_train.types import PROXIMAL, SAWItem

# Names of groups in a warning.
SHOWN = 4


def sound_rows(
    items: Sequence[SAWItem],
    model: nn.Module,
    version: int,
    *,
    cfg: TrainerConfig,
    execution: Execution,
) -> list[SAWItem]:
    """The rows without those of groups beyond `cfg.guards.max_kl_at_lag_0`.

    items: of rank 0, as the result; all ranks take part in the pass over them.
    [] where more than half of the groups are beyond it: then the sampler is at fault, or the model.
    """
    judged = scored(list(items), model, frozenset({PROXIMAL}), cfg, execution=execution)
    found, most = divergences(judged, version), cfg.guards.max_kl_at_lag_0
    far = {group for group, kl in found.items() if most is None or not kl <= most}
    if 2 * len(far) > len(found):
        return []
    if far:
        logging.getLogger(__name__).warning(
            "log-probs of the groups %s are not those of version %d, which they name: their rows "
            "are left out of the update; look at the actors and servers that they came from",
            sorted(far)[:SHOWN],
            version,
        )
    return [item for item in items if item.group not in far]


def divergences(items: Sequence[SAWItem], version: int) -> Mapping[str, float]:
    """KL(sampler || current) in nats per token of each group, on its tokens of the version.

    items: with log-probs under the current params as PROXIMAL. Groups without such tokens are left
    out.
    """
    sums, counts = defaultdict[str, float](float), Counter[str]()
    for item in items:
        if item.behavior_logprobs is None or item.versions is None:
            continue
        fresh = item.action_mask & (item.versions == version)
        ratio = torch.from_numpy((item.attachments[PROXIMAL] - item.behavior_logprobs)[fresh])
        sums[item.group] += float(k3(bounded(ratio.double())).sum())
        counts[item.group] += int(fresh.sum())
    return {group: sums[group] / count for group, count in counts.items() if count}
