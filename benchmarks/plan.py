"""Prediction of `ludic plan` for an update, beside the update on this CPU.

    python benchmarks/plan.py [--hidden 256] [--layers 4] [--micro-tokens 2048]

Memory is how far the process grows, at its largest, while it makes the model and two updates of one
micro-batch; time is that of the second.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import Qwen3Config, Qwen3ForCausalLM

from ludic_train.algorithms.presets import grpo
from ludic_train.distributed.fsdp import checkpoint_activations
from ludic_train.trainer.config import Execution, Guards, TrainerConfig
from ludic_train.trainer.memory_estimate import (
    Estimate,
    Load,
    estimate_update,
    measured_flops,
    model_from_config,
)
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem


def config_of(args: argparse.Namespace) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=args.vocabulary,
        hidden_size=args.hidden,
        intermediate_size=3 * args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=args.hidden // 4,
        tie_word_embeddings=True,
    )


def make_rows(args: argparse.Namespace) -> list[SAWItem]:
    rng = np.random.default_rng(0)
    mask = np.arange(args.row_tokens) >= args.row_tokens // 2
    return [
        SAWItem(
            input_ids=rng.integers(3, args.vocabulary, args.row_tokens).astype(np.int32),
            action_mask=mask,
            weight=np.where(mask, rng.normal(), 0).astype(np.float32),
            behavior_logprobs=np.where(mask, -5.0, 0).astype(np.float32),
        )
        for _ in range(args.micro_tokens // args.row_tokens)
    ]


def resident_bytes() -> int:
    """Memory that the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measured(args: argparse.Namespace) -> tuple[int, float]:
    """Bytes that the process grew by, and seconds of an update."""
    rows = make_rows(args)
    before = resident_bytes()
    model = Qwen3ForCausalLM(config_of(args))
    if args.recompute:
        checkpoint_activations(model)
    cfg = TrainerConfig(
        micro_token_budget=args.micro_tokens,
        max_seq_len=args.row_tokens,
        execution=Execution(packing=False),
        guards=Guards(max_kl_at_lag_0=None),
    )
    trainer = Trainer(model, grpo(), None, cfg=cfg)
    trainer.update(rows)
    started = time.perf_counter()
    trainer.update(rows)
    seconds = time.perf_counter() - started
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return largest - before, seconds


def planned(args: argparse.Namespace) -> Estimate:
    load = Load(
        tokens=args.micro_tokens, micro_tokens=args.micro_tokens, row_tokens=args.row_tokens
    )
    model = model_from_config(config_of(args), torch.float32)
    return estimate_update(model, load, recompute=args.recompute)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--micro-tokens", type=int, default=2048)
    parser.add_argument("--row-tokens", type=int, default=256)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    grown, seconds = measured(args)
    estimate = planned(args)
    ideal = estimate.flops / measured_flops()
    table = Table("", "planned", "measured", "measured / planned")
    gib = estimate.total_bytes / 2**30
    table.add_row("GiB", f"{gib:.3f}", f"{grown / 2**30:.3f}", f"{grown / 2**30 / gib:.2f}")
    table.add_row("seconds", f"{ideal:.2f}", f"{seconds:.2f}", f"{seconds / ideal:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
