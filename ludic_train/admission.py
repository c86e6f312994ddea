"""Which rows of a batch an update is made of: those that fit, and are fresh enough."""

from __future__ import annotations

from collections.abc import Sequence

from ludic_train.aggregation import Aggregation
from ludic_train.config import TrainerConfig
from ludic_train.errors import EmptyBatch
from ludic_train.metrics import Metrics, Stat, Total
from ludic_train.planning import MicroBatch, plan_update
from ludic_train.ranks import world_size
from ludic_train.saw import SAWItem

Plan = tuple[MicroBatch, ...]


def planned_rows(
    items: Sequence[SAWItem],
    cfg: TrainerConfig,
    aggregation: Aggregation,
    *,
    version: int,
    max_lag: int | None,
    packing: bool,
) -> tuple[tuple[Plan, ...], Metrics]:
    """The micro-batches of each rank, and what is worth logging about all of them.

    Raises EmptyBatch where no row is left.
    """
    usable, dropped = usable_rows(items, cfg.max_seq_len, version=version, max_lag=max_lag)
    plan = plan_update(
        usable,
        token_budget=cfg.micro_token_budget,
        world_size=world_size(),
        aggregation=aggregation,
        packing=packing,
    )
    tokens = sum(len(item.input_ids) for item in usable)
    computed = sum(m.input_ids.size for own in plan for m in own)
    return plan, {
        **dropped,
        "rows": Total(len(usable)),
        "tokens/trained": Total(tokens),
        "tokens/fill": Stat(tokens, computed),
    }


def usable_rows(
    items: Sequence[SAWItem], max_seq_len: int, *, version: int, max_lag: int | None
) -> tuple[list[SAWItem], Metrics]:
    """The rows of at most `max_seq_len` tokens and `max_lag` updates; counts of all others.

    Raises EmptyBatch where no row is left.
    """
    short = [item for item in items if len(item.input_ids) <= max_seq_len]
    fresh = [item for item in short if max_lag is None or _lag(item, version) <= max_lag]
    if not fresh:
        raise EmptyBatch(
            f"of {len(items)} rows, {len(items) - len(short)} exceed max_seq_len={max_seq_len} and "
            f"{len(short) - len(fresh)} lag more than max_lag={max_lag} updates; none is left"
        )
    return fresh, {
        "rows/overlong": Total(len(items) - len(short)),
        "rows/stale": Total(len(short) - len(fresh)),
    }


def _lag(item: SAWItem, version: int) -> int:
    """Updates since the oldest of its tokens was sampled; 0 where nobody knows."""
    if item.versions is None or not item.action_mask.any():
        return 0
    return version - int(item.versions[item.action_mask].min())
