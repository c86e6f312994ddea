"""Prediction of `ludic plan` beside two updates of a chat model's shape on this CPU.

    python benchmarks/plan.py [--shapes 135M 0.5B] [--kinds full lora recompute]

Memory is how far a process grows, at its largest, while it makes the model and two updates of one
micro-batch; time is the processor's in the second. MALLOC_MMAP_THRESHOLD_ makes glibc give freed
memory back: by its default it keeps much of it, "kept" times what the update needs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness.shapes import SHAPES, random_model
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.table import Table
from torch import nn

from ludic_train.algorithms.presets import grpo
from ludic_train.commands.plan import BESIDE_PRODUCTS
from ludic_train.distributed.fsdp import checkpoint_activations
from ludic_train.sources.offline import OfflineBatchSource
from ludic_train.trainer.config import Execution, Guards, Load, TrainerConfig
from ludic_train.trainer.memory_estimate import (
    estimate_update,
    measured_flops,
    model_from_config,
)
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem

HONEST = {"MALLOC_MMAP_THRESHOLD_": "262144"}
LORA_RANK = 16
KINDS = {"full": (0, False), "lora": (LORA_RANK, False), "recompute": (LORA_RANK, True)}


def made_rows(vocabulary: int, load: Load) -> list[SAWItem]:
    rng = np.random.default_rng(0)
    mask = np.arange(load.row_tokens) >= load.row_tokens * (1 - load.sampled)
    return [
        SAWItem(
            input_ids=rng.integers(3, vocabulary, load.row_tokens).astype(np.int32),
            action_mask=mask,
            weight=np.where(mask, rng.normal(), 0).astype(np.float32),
            behavior_logprobs=np.where(mask, -5.0, 0).astype(np.float32),
        )
        for _ in range(load.tokens // load.row_tokens)
    ]


def made_model(shape: str, lora_rank: int, *, recompute: bool) -> nn.Module:
    model: nn.Module = random_model(shape)
    if lora_rank:
        adapters = LoraConfig(r=lora_rank, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, adapters)
    if recompute:
        checkpoint_activations(model)
    return model


def resident_bytes() -> int:
    """Memory that the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measured(shape: str, kind: str, load: Load) -> dict[str, float]:
    """Bytes that this process grows by, seconds of an update, and the predictions."""
    config, (lora_rank, recompute) = SHAPES[shape], KINDS[kind]
    rows = made_rows(config.vocab_size, load)
    before = resident_bytes()
    cfg = TrainerConfig(
        micro_token_budget=load.micro_tokens,
        max_seq_len=load.row_tokens,
        execution=Execution(packing=False),
        guards=Guards(max_kl_at_lag_0=None),
    )
    model = made_model(shape, lora_rank, recompute=recompute)
    trainer = Trainer(model, grpo(), OfflineBatchSource(rows, batch_size=len(rows)), cfg=cfg)
    trainer.update(rows)
    started = time.process_time()
    trainer.update(rows)
    seconds = (time.process_time() - started) / torch.get_num_threads()
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    planned = estimate_update(
        model_from_config(config, torch.float32, lora_rank), load, recompute=recompute
    )
    return {
        "bytes": largest - before,
        "planned_bytes": planned.total_bytes,
        "seconds": seconds,
        "planned_seconds": BESIDE_PRODUCTS * planned.flops / measured_flops(),
    }


def in_process(shape: str, kind: str, args: argparse.Namespace, env: dict[str, str]) -> Any:  # noqa: ANN401
    """The numbers of `measured` in a process of its own, whose memory is its own too."""
    words = ["--one", shape, kind, "--micro-tokens", str(args.micro_tokens)]
    words += ["--row-tokens", str(args.row_tokens), "--threads", str(args.threads)]
    done = subprocess.run(
        [sys.executable, __file__, *words],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["135M"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--micro-tokens", type=int, default=2048)
    parser.add_argument("--row-tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    load = Load(
        tokens=args.micro_tokens, micro_tokens=args.micro_tokens, row_tokens=args.row_tokens
    )
    if args.one:
        shape, kind = args.one
        print(json.dumps(measured(shape, kind, load)))
        return
    columns = ("shape", "update", "GiB planned", "measured", "ratio", "kept", "s planned", "ratio")
    table = Table(*columns)
    for shape in args.shapes:
        for kind in args.kinds:
            honest = in_process(shape, kind, args, HONEST)
            usual = in_process(shape, kind, args, {})
            table.add_row(
                shape,
                kind,
                f"{honest['planned_bytes'] / 2**30:.2f}",
                f"{honest['bytes'] / 2**30:.2f}",
                f"{honest['bytes'] / honest['planned_bytes']:.2f}",
                f"{usual['bytes'] / honest['bytes']:.2f}",
                f"{usual['planned_seconds']:.1f}",
                f"{usual['seconds'] / usual['planned_seconds']:.2f}",
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
