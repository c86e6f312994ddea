"""What becomes of a batch before the updates on it: rows with all that a loss reads, in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from ludic_gym.errors import ConfigError
from ludic_train.algorithms import RLAlgorithm
from ludic_train.attachments import Streams, attached
from ludic_train.config import TrainerConfig
from ludic_train.losses import PROXIMAL, REFERENCE, VALUES
from ludic_train.passes import forward
from ludic_train.planning import MicroBatch
from ludic_train.ranks import rank, scattered, world_size
from ludic_train.saw import SAWItem


def prepared(
    items: Sequence[SAWItem],
    model: nn.Module,
    reference: nn.Module | None,
    algo: RLAlgorithm,
    cfg: TrainerConfig,
    *,
    packing: bool,
) -> list[SAWItem]:
    """The items with everything attached that the algorithm asks for; [] on other ranks than 0.

    Raises ConfigError where a reference is asked for and there is none.
    """
    kept = list(items)
    names = algo.attach & {PROXIMAL, VALUES}
    # In a single update, the params that begin the batch are those that begin the update.
    if names != {PROXIMAL} or cfg.minibatches * cfg.epochs > 1:
        kept = scored(kept, model, names, cfg, packing=packing)
    if REFERENCE in algo.attach and not _judged(kept):
        with reference_model(model, reference, algo.name) as judge:
            kept = scored(kept, judge, frozenset({REFERENCE}), cfg, packing=packing)
    return algo.refine(kept) if algo.refine and rank() == 0 else kept


def scored(
    items: list[SAWItem],
    model: nn.Module,
    names: frozenset[str],
    cfg: TrainerConfig,
    *,
    packing: bool,
) -> list[SAWItem]:
    """The items with what the model makes of their action tokens attached under each name.

    VALUES gets the value head's, any other name the log-probs.
    """
    if not names:
        return items
    budget = max(cfg.micro_token_budget, *(len(i.input_ids) for i in items), 0)

    @torch.no_grad()
    def score(micro_batch: MicroBatch) -> Streams:
        out = forward(model, micro_batch, cfg.model_device)
        streams = {VALUES: out.values} if VALUES in names else {}
        streams |= dict.fromkeys(names - {VALUES}, out.logprobs)
        return {n: s.float().cpu().numpy() for n, s in streams.items() if s is not None}

    model.eval()
    return attached(items, score, token_budget=budget, packing=packing)


@contextmanager
def reference_model(
    model: nn.Module, reference: nn.Module | None, wanted_by: str
) -> Iterator[nn.Module]:
    """The frozen reference, or the model with its LoRA adapter off while the context lasts.

    Raises ConfigError where there is neither.
    """
    from peft import PeftModel

    if reference is not None:
        yield reference
    elif isinstance(model, PeftModel):
        with model.disable_adapter():
            yield model
    else:
        raise ConfigError(
            f"{wanted_by} compares with a reference model and there is none; give "
            "Trainer(reference=copy.deepcopy(model)), train by LoRA, or have the source attach "
            "its log-probs"
        )


def minibatches(
    items: Sequence[SAWItem], cfg: TrainerConfig, version: int
) -> Iterator[list[SAWItem]]:
    """The rows of each update: `cfg.epochs` passes, each cut into `cfg.minibatches` at random."""
    if cfg.minibatches == cfg.epochs == 1:
        yield list(items)
        return
    rng = np.random.default_rng((cfg.seed, version))
    for _ in range(cfg.epochs):
        order = rng.permutation(len(items))
        for part in np.array_split(order, min(cfg.minibatches, len(items)) or 1):
            yield [items[i] for i in part]


def _judged(items: Sequence[SAWItem]) -> bool:
    """Whether the source attached log-probs of a reference or teacher; rank 0 knows."""
    judged = all(REFERENCE in item.attachments for item in items)
    return scattered(lambda: [judged] * world_size(), lambda yes: b"y" * yes, bool)
