"""`ludic train --plan`: memory and time of an update, before anything is loaded."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Annotated, Literal

import tyro

from ludic_gym.errors import ConfigError
from ludic_train.trainer.config import Load

# Time of an update for each second of its matrix products, as measured on a CPU.
BESIDE_PRODUCTS = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Estimate the memory and time that an update of a model takes, before it is made.

    Shapes alone are computed: no params are loaded and no memory is needed.

    An update learns from --tokens tokens, --micro-tokens at a time (a trainer's
    micro_token_budget). If the total is more than your device has: --recompute first, then a
    smaller --micro-tokens (both leave the result as it is), then --lora-rank, --dtype bfloat16,
    several GPUs (--world-size, with torchrun and shard_model), or --offload.

    For example:
      ludic train --plan path/to/model
      ludic train --plan path/to/model --recompute --micro-tokens 4096
      ludic train --plan Qwen/Qwen2.5-7B --dtype bfloat16 --lora-rank 16 --tflops 400
      ludic train --plan Qwen/Qwen2.5-7B --world-size 8 --recompute --tflops 400

    Attributes:
        model: Folder with a config.json, hub id, or ludic-small.
        load: Tokens and ranks of an update.
        dtype: Type of forward and backward. Params that are trained, their gradients and moments
            are float32 always.
        lora_rank: Rank of adapters; 0 trains the params themselves.
        recompute: Compute activations again in the backward pass instead of keeping them.
        offload: Keep params, gradients and moments in the memory of the host.
        tflops: Speed of the device in practice, in 1e12 multiplications and additions per second:
            some 400 for an H100 in bfloat16, 0.1 for a CPU core. Without it, this machine's CPU is
            measured.
        json: Print JSON: bytes by their use, their sum, floating-point operations and seconds of an
            update, each per rank.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    load: Annotated[Load, tyro.conf.arg(name="")] = field(default_factory=Load)
    dtype: Literal["float32", "bfloat16"] = "float32"
    lora_rank: int = 0
    recompute: bool = False
    offload: bool = False
    tflops: float | None = None
    json: bool = False


def main(argv: list[str]) -> int:
    """Print the estimate; the exit code."""
    options = tyro.cli(PlanOptions, args=argv, prog="ludic train --plan")
    if options.tflops is not None and not 0 < options.tflops < math.inf:
        raise ConfigError(f"tflops={options.tflops:g} must be above 0")
    # torch takes seconds, and --help must not wait for it.
    from ludic_train.trainer.memory_estimate import (
        DTYPES,
        estimate_update,
        measured_flops,
        model_from_config,
        read_config,
    )

    config = read_config(options.model)
    estimate = estimate_update(
        model_from_config(config, DTYPES[options.dtype], options.lora_rank),
        options.load,
        recompute=options.recompute,
        offload=options.offload,
    )
    # The user's unit is TFLOP/s.
    speed = measured_flops() if options.tflops is None else options.tflops * 1e12
    seconds = BESIDE_PRODUCTS * estimate.flops / speed
    if options.json:
        totals = {"total_bytes": estimate.total_bytes, "seconds": seconds}
        print(json.dumps(asdict(estimate) | totals, indent=2))
        return 0
    print(f"{'params':14s}{estimate.params:>18,d}   trained {estimate.trained:,d}\n")
    print("memory per rank, at the peak of an update")
    for name, size in {**estimate.bytes, "together": estimate.total_bytes}.items():
        print(f"  {name:14s}{size / 2**30:>12.3f} GiB")
    if estimate.host_bytes:
        print("\nmemory of the host, per rank")
        for name, size in estimate.host_bytes.items():
            print(f"  {name:14s}{size / 2**30:>12.3f} GiB")
    print(f"\ncompute per rank and update {estimate.flops / 1e12:.3g} TFLOP")
    print(f"time at {speed / 1e12:.3g} TFLOP/s        {seconds:.3g} s")
    return 0
