"""Plans and metrics as bytes, for other ranks; reading them back runs nothing that they contain."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludic_train.metrics import KINDS, Metric, Metrics
from ludic_train.trainer.microbatches import MicroBatch

ATTACHED = "attachments/"


def plan_to_bytes(micro_batches: Sequence[MicroBatch]) -> bytes:
    """The arrays of the micro-batches as one .npz file."""
    buffer = io.BytesIO()
    arrays = {
        f"{k}/{name}": array
        for k, micro_batch in enumerate(micro_batches)
        for name, array in _arrays(micro_batch).items()
    }
    np.savez(buffer, count=np.array(len(micro_batches)), **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def plan_from_bytes(data: bytes) -> tuple[MicroBatch, ...]:
    """The micro-batches that `plan_to_bytes` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        found: list[dict[str, NDArray[Any]]] = [{} for _ in range(int(arrays["count"]))]
        for key in set(arrays.files) - {"count"}:
            k, _, name = key.partition("/")
            found[int(k)][name] = arrays[key]
    return tuple(map(_micro_batch, found))


def metrics_to_bytes(metrics: Mapping[str, Metric]) -> bytes:
    """The metrics as JSON, floats exact."""
    plain = {name: [type(metric).__name__, *astuple(metric)] for name, metric in metrics.items()}
    return json.dumps(plain).encode()


def metrics_from_bytes(data: bytes) -> Metrics:
    """The metrics that `metrics_to_bytes` wrote."""
    return {name: KINDS[kind](*numbers) for name, (kind, *numbers) in json.loads(data).items()}


def _arrays(micro_batch: MicroBatch) -> dict[str, NDArray[Any]]:
    fields = {name: getattr(micro_batch, name) for name in MicroBatch.__dataclass_fields__}
    attached = fields.pop("attachments")
    arrays = {name: np.asarray(value) for name, value in fields.items() if value is not None}
    return arrays | {ATTACHED + name: array for name, array in attached.items()}


def _micro_batch(arrays: Mapping[str, NDArray[Any]]) -> MicroBatch:
    own: dict[str, Any] = {n: a for n, a in arrays.items() if not n.startswith(ATTACHED)}
    own["num_rollouts"], own["whole"] = int(own["num_rollouts"]), bool(own["whole"])
    attached = {n.removeprefix(ATTACHED): a for n, a in arrays.items() if n not in own}
    return MicroBatch(**own, attachments=attached)
