"""Plans and metrics as bytes, for other ranks; reading them back runs nothing that they contain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from safetensors.numpy import load, save

from ludic_train.metrics import KINDS, Metric, Metrics
from ludic_train.trainer.microbatches import Array, MicroBatch, arrays_of, micro_batch_from


def plan_to_bytes(micro_batches: Sequence[MicroBatch]) -> bytes:
    """The arrays of the micro-batches as one safetensors file, named NUMBER/NAME."""
    return save(
        {
            f"{k}/{name}": array
            for k, micro_batch in enumerate(micro_batches)
            for name, array in arrays_of(micro_batch).items()
        }
    )


def plan_from_bytes(data: bytes) -> tuple[MicroBatch, ...]:
    """The micro-batches that `plan_to_bytes` wrote."""
    found: dict[int, dict[str, Array]] = {}
    for key, array in load(data).items():
        # An attachment's name may hold a slash itself, so only the first one counts.
        k, _, name = key.partition("/")
        found.setdefault(int(k), {})[name] = array
    return tuple(micro_batch_from(found[k]) for k in sorted(found))


def metrics_to_bytes(metrics: Mapping[str, Metric]) -> bytes:
    """The metrics as JSON, floats exact."""
    plain = {name: [type(metric).__name__, *astuple(metric)] for name, metric in metrics.items()}
    return json.dumps(plain).encode()


def metrics_from_bytes(data: bytes) -> Metrics:
    """The metrics that `metrics_to_bytes` wrote."""
    return {name: KINDS[kind](*numbers) for name, (kind, *numbers) in json.loads(data).items()}
