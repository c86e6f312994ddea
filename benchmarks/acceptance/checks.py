"""Assertions about a run's folder, with the figures that they are about."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acceptance.bench import Bench, StepFailed
from ludic_train.loggers.loggers import read_metrics
from ludic_train.runs.report import time_split

# Nats per token between trainer and sampler; bfloat16 on both sides makes some 1e-3.
KL = 0.01
# Seconds of a push. 0.5B params are 2 GB: less than a second of memory, the rest is overhead.
PUSH_S = 30.0
# Kernels that never hold all scores.
FUSED = {"flash", "efficient", "cudnn", "flash_attention_2", "flash_attention_3", "flex_attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """An assertion. name: its subject. found, wanted: as text."""

    name: str
    found: str
    wanted: str
    good: bool


@dataclass(slots=True)
class Found:
    """Result of a step: its checks, and figures by name for the report."""

    checks: list[Check] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def check(self, name: str, good: bool, found: object, wanted: object) -> None:
        """Add an assertion."""
        self.checks.append(Check(name=name, found=str(found), wanted=str(wanted), good=good))

    def equal(self, name: str, found: object, wanted: object) -> None:
        """Add the assertion that two values are equal."""
        self.check(name, found == wanted, found, wanted)

    def below(self, name: str, found: float, limit: float) -> None:
        """Add the assertion that a finite number is below its limit."""
        self.check(name, found < limit, f"{found:.3g}", f"below {limit:g}")


def checked_run(bench: Bench, found: Found, name: str, *, updates: int, lora: bool = False) -> None:
    """Add the assertions about a run that has ended, and its figures.

    name: of its folder in that of the bench. updates: that it was to make. lora: it has adapters.
    Raises StepFailed for a folder without the files of a run.
    """
    out = bench.folder / name
    try:
        records = [r for r in read_metrics(out / "metrics.jsonl") if "loss" in r]
        compute = json.loads((out / "compute.json").read_text())
        results = json.loads((out / "results.json").read_text())
    except FileNotFoundError as error:
        raise StepFailed(f"the run left no {error.filename}") from error
    found.equal(f"{name}: updates", [int(r["update"]) for r in records], [*range(1, updates + 1)])
    for metric in ("reward", "loss", "grad_norm"):
        values = [record[metric] for record in records]
        shown = " ".join(f"{value:.3g}" for value in values)
        found.check(f"{name}: {metric}", all(map(math.isfinite, values)), shown, "finite numbers")
    success = results.get("test/success", math.nan)
    found.check(f"{name}: evaluation", 0 <= success <= 1, success, "a success rate")
    _check_compute(bench, found, name, compute, lora=lora)
    found.below(f"{name}: trainer-to-sampler KL", _largest(records, "mismatch/kl_at_lag_0"), KL)
    found.below(f"{name}: seconds of a push", _largest(records, "seconds/publish"), PUSH_S)
    found.figures[name] = _figures(out, records, compute)


def _check_compute(
    bench: Bench, found: Found, name: str, compute: Mapping[str, Any], *, lora: bool
) -> None:
    """Add the assertions about devices, types and kernels."""
    device, dtype = ("cuda:0", "bfloat16") if bench.on_card else ("cpu", "float32")
    masters, computed = [f"float32 on {device}"], f"{dtype} on {device}"
    found.equal(f"{name}: device", compute["device"], device)
    found.equal(f"{name}: trained params", [*compute["trained"]], masters)
    found.equal(f"{name}: frozen params", [*compute["frozen"]], [computed] if lora else [])
    found.equal(f"{name}: moments", [*compute["moments"]], masters)
    if compute["cache"] is not None:
        found.equal(f"{name}: cache of the sampler", compute["cache"], computed)
    used = {each["kernel"] for each in compute["attention"]}
    wanted = f"of {', '.join(sorted(FUSED))}"
    found.check(f"{name}: attention kernels", bool(used) and used <= FUSED, sorted(used), wanted)
    computed_in = sorted({each["dtype"] for each in compute["attention"]})
    found.equal(f"{name}: forward pass", computed_in, [dtype])


def _figures(
    out: Path, records: list[dict[str, float]], compute: Mapping[str, Any]
) -> dict[str, Any]:
    """Numbers of a run that a reader wants to compare, and where it computed."""
    # The first update allocates and tunes.
    later = records[1:] or records
    pushed = sum(file.stat().st_size for file in (out / "model").glob("*.safetensors"))
    push_s = _mean(r["seconds/publish"] for r in later)
    return {
        "trained tokens/s": _mean(r["tokens/trained_per_second"] for r in later),
        "peak GiB": max(r["memory/peak_gib"] for r in records),
        "KL": _largest(records, "mismatch/kl_at_lag_0"),
        "push s": push_s,
        # The local engine may share the params, and nothing is pushed.
        "push GB/s": pushed / push_s / 1e9 if compute["cache"] is None else math.nan,
        "seconds": time_split(out / "metrics.jsonl"),
        "compute": compute,
    }


def _largest(records: Iterable[Mapping[str, float]], name: str) -> float:
    """The largest size of a metric; nan, which is below nothing, if any update lacks it."""
    sizes = [abs(record.get(name, math.nan)) for record in records]
    return math.nan if not sizes or any(map(math.isnan, sizes)) else max(sizes)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known)
