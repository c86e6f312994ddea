"""Updates on one CUDA device: tokens/s and MFU, peak memory.

    python benchmarks/gpu.py [--sizes 0.5B 1.5B] [--updates 5] [--tokens 32768] [--json FILE]

Models have the shapes of Qwen models and random params; updates compute in bfloat16 with float32
logits, over params and moments in float32, as `ludic train --dtype bf16` does. Rows have lengths
between a quarter of --longest and all of it, half of them sampled; with --equal, all of it. MFU
counts six operations per param and token, of the head's params for sampled tokens alone, and what
attention takes, against --peak-tflops (989, the dense bfloat16 peak of an H100 or H200).
`--device cpu --sizes tiny` goes the same way on a small model, to see that it goes.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from shapes import SHAPES, random_model

from ludic_train.algorithms.presets import grpo
from ludic_train.distributed.device import process_group
from ludic_train.distributed.fsdp import checkpoint_activations, shard_model
from ludic_train.trainer.config import Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem


def make_rows(tokens: int, lengths: tuple[int, int], vocabulary: int) -> list[SAWItem]:
    """Rows of lengths between these two, half of them sampled; about `tokens` in all."""
    rng, rows = np.random.default_rng(0), []
    shortest, longest = lengths
    while tokens > 0:
        length = int(rng.integers(shortest, longest + 1))
        rows.append(row_of(np.arange(length) >= length // 2, vocabulary, rng))
        tokens -= length
    return rows


def row_of(mask: np.ndarray, vocabulary: int, rng: np.random.Generator) -> SAWItem:
    """A random row, sampled where the mask says."""
    return SAWItem(
        input_ids=rng.integers(3, vocabulary, len(mask)).astype(np.int32),
        action_mask=mask,
        weight=np.where(mask, rng.normal(), 0).astype(np.float32),
        behavior_logprobs=np.where(mask, -np.log(vocabulary), 0).astype(np.float32),
    )


def update_flops(model: torch.nn.Module, rows: list[SAWItem]) -> float:
    """Operations of the model: 6 per param and token, 3 per operation of attention forward."""
    config = model.config
    embedding = config.vocab_size * config.hidden_size
    body = sum(p.numel() for p in model.parameters()) - embedding
    if not config.tie_word_embeddings:
        body -= embedding
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    # Of causal attention per token and token before it, all layers together.
    attended = 2.0 * config.num_attention_heads * head_dim * config.num_hidden_layers
    total = 0.0
    for row in rows:
        length, sampled = len(row.input_ids), int(row.action_mask.sum())
        total += 6.0 * (body * length + embedding * sampled) + 3.0 * attended * length**2
    return total


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--sizes", nargs="+", choices=sorted(SHAPES), default=["0.5B", "1.5B"])
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=32_768, help="of an update")
    parser.add_argument("--micro-tokens", type=int, default=16_384, help="of a forward pass")
    parser.add_argument("--longest", type=int, default=2048, help="row, in tokens")
    parser.add_argument("--equal", action="store_true", help="all rows are the longest")
    parser.add_argument("--peak-tflops", type=float, default=989.0)
    parser.add_argument("--json", type=Path, help="file that gets the numbers of the updates too")
    parser.add_argument("--recompute", action="store_true", help="activations, in backward")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "benchmarks/gpu.py measures a CUDA device and torch finds none here "
            f"(torch {torch.__version__}); --device cpu --sizes tiny tries the program out"
        )
    console = Console()
    with process_group(args.device):
        updates = {size: measured_size(size, args) for size in args.sizes}
        if args.json is not None:
            args.json.write_text(json.dumps(updates, indent=2) + "\n", encoding="utf-8")
        console.print(updates_table(updates))


def measured_size(size: str, args: argparse.Namespace) -> dict[str, float]:
    """Tokens per second and MFU of the fastest update of a model, and peak bytes of all."""
    model = random_model(size, device=args.device)
    if args.recompute:
        checkpoint_activations(model)
    shard_model(model, param_dtype=torch.bfloat16)
    shortest = args.longest if args.equal else args.longest // 4
    rows = make_rows(args.tokens, (shortest, args.longest), model.config.vocab_size)
    cfg = TrainerConfig(
        device=args.device,
        micro_token_budget=args.micro_tokens,
        max_seq_len=args.longest,
        guards=Guards(max_kl_at_lag_0=None),
    )
    trainer = Trainer(model, grpo(), None, cfg=cfg)
    gc.collect()
    if args.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(args.updates + 1):
        wait(args.device)
        started = time.perf_counter()
        trainer.update(rows)
        wait(args.device)
        seconds.append(time.perf_counter() - started)
    # The first update allocates and tunes.
    fastest = min(seconds[1:])
    return {
        "tokens/s": sum(len(row.input_ids) for row in rows) / fastest,
        "MFU": update_flops(model, rows) / fastest / (args.peak_tflops * 1e12),
        # CPUs keep no such count.
        "peak_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else 0,
    }


def updates_table(updates: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table("model", "tokens/s", "MFU", "peak GiB", title="updates, GRPO, bfloat16, AdamW")
    for size, made in updates.items():
        peak = f"{made['peak_bytes'] / 2**30:.2f}"
        table.add_row(size, f"{made['tokens/s']:,.0f}", f"{made['MFU']:.1%}", peak)
    return table


if __name__ == "__main__":
    main()
