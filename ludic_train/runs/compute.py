"""Facts about where, and in which types, a run really computes: OUT/compute.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from ludic_train.distributed.ranks import world_size
from ludic_train.engine.client import LocalChatClient
from ludic_train.runs.learner import Learner
from ludic_train.trainer.trainer import Trainer

COMPUTE = "compute.json"


def write_compute(out: Path, learner: Learner, trainer: Trainer) -> None:
    """Write the facts to OUT/compute.json, once the trainer has made an update.

        {"device": "cuda:0", "card": "NVIDIA H100 80GB HBM3", "ranks": 1,
         "trained": {"float32 on cuda:0": 494032768}, "frozen": {},
         "moments": {"float32 on cuda:0": 988065536},
         "attention": [{"kernel": "flash", "dtype": "bfloat16"}],
         "cache": "bfloat16 on cuda:0", "float32_products": "high",
         "versions": {"torch": "2.13.0", "cuda": "13.0", "transformers": "5.16.1"}}

    trained, frozen, moments: numbers by type and device, of all ranks together. attention: of
        torch's kernels, in the forward passes of updates. cache: of the local engine, null where
        servers sample.
    """
    (out / COMPUTE).write_text(json.dumps(_facts(learner, trainer), indent=2) + "\n")


def _facts(learner: Learner, trainer: Trainer) -> dict[str, Any]:
    device, client = learner.device, learner.client
    params = list(learner.model.parameters())
    states = trainer.optimizer.state.values()
    # A count of steps has no dimension, and is no moment.
    moments = [t for state in states for t in state.values() if isinstance(t, Tensor) and t.ndim]
    cached = client.cached_keys if isinstance(client, LocalChatClient) else None
    return {
        "device": device,
        "card": None if device == "cpu" else torch.cuda.get_device_name(device),
        "ranks": world_size(),
        "trained": _places(p for p in params if p.requires_grad),
        "frozen": _places(p for p in params if not p.requires_grad),
        "moments": _places(moments),
        "attention": [each._asdict() for each in sorted(trainer.attention)],
        "cache": None if cached is None else _place(cached),
        "float32_products": torch.get_float32_matmul_precision(),
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "transformers": transformers.__version__,
        },
    }


def _places(tensors: Iterable[Tensor]) -> dict[str, int]:
    """Count of the numbers of each type on each device."""
    counted: Counter[str] = Counter()
    for tensor in tensors:
        counted[_place(tensor)] += tensor.numel()
    return dict(counted)


def _place(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
