"""Updates and sampling on a CUDA card, beside a loop by hand, TRL and transformers' `generate`.

    python benchmarks/gpu_peers.py [--size 0.5B] [--repeats 3] [--trl-python PYTHON] [--json FILE]

Ludic computes as `ludic train` does on a card: params and moments in float32, passes in bfloat16,
float32 logits. The loop by hand is that of benchmarks/trainer.py under torch.autocast, with the
same tokens in a micro-batch, rows sorted by length, and logits of sampled tokens in 16 bits. TRL
has the number of sorted micro-batches that is fastest for it. Sampling is in bfloat16, with the
loads of benchmarks/sampler.py. Seconds of the wall until the card has done its work; all but TRL
take turns. `--device cpu --size tiny` tries the program out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gpu import refuse_without_device, row_of, wait
from harness.shapes import SHAPES, random_model
from rich.console import Console
from rich.table import Table
from sampler import endless, make_load, sample_ours, sample_theirs
from trainer import BY_HAND, sorted_chunks, trl_rates, update_from

from ludic_train.algorithms.presets import grpo
from ludic_train.distributed.device import process_group
from ludic_train.distributed.fsdp import shard_model
from ludic_train.engine.client import LocalChatClient
from ludic_train.models.chat_template import render_chat
from ludic_train.trainer.config import CARD_TOKENS, Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWItem

OURS = "Ludic"
LOADS = ("batch 1", "batch 16", "batch 64", "batch 256", "ragged 64")
Rates = dict[str, float]


def batches(vocabulary: int, shrink: int = 1) -> dict[str, list[SAWItem]]:
    """Batches of rows by name. shrink: divides all lengths."""
    rng = np.random.default_rng(1)
    skewed = [int(n) // shrink for n in np.clip(rng.lognormal(5.8, 0.9, 64), 64, 2048)]
    turn = np.arange(200 // shrink) >= 150 // shrink
    masks = {
        "64 rows of 64 to 2,048 tokens": [np.arange(n) >= n - max(n // 3, 1) for n in skewed],
        "16 rows of 2,048 tokens": [np.arange(2048 // shrink) >= 1024 // shrink] * 16,
        "16 episodes of 10 turns": [np.tile(turn, 10)] * 16,
        "8 prompts of 512 tokens, 8 replies of 128 to each": [
            np.arange(640 // shrink) >= 512 // shrink
        ]
        * 64,
    }
    made = {name: [row_of(mask, vocabulary, rng) for mask in each] for name, each in masks.items()}
    shared = made["8 prompts of 512 tokens, 8 replies of 128 to each"]
    for number, row in enumerate(shared):
        prompt = ~row.action_mask
        row.input_ids[prompt] = shared[number - number % 8].input_ids[prompt]
    return made


def in_turns(works: Mapping[str, Callable[[], object]], repeats: int, device: str) -> Rates:
    """Median seconds of each work; the first round does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            wait(device)
            started = time.perf_counter()
            work()
            wait(device)
            seconds[name].append(time.perf_counter() - started)
    return {name: median(each[1:]) for name, each in seconds.items()}


def update_seconds(args: argparse.Namespace) -> Iterator[tuple[str, int, Rates]]:
    """Name, tokens, and seconds of an update of each batch, by who makes it."""
    model = random_model(args.size, device=args.device)
    shard_model(model, param_dtype=torch.bfloat16 if args.device == "cuda" else None)
    cfg = TrainerConfig(
        device=args.device, micro_token_budget=CARD_TOKENS, guards=Guards(max_kl_at_lag_0=None)
    )
    trainer = Trainer(model, grpo(), None, cfg=cfg)
    other = random_model(args.size, device=args.device)
    optimizer = torch.optim.AdamW(other.parameters(), lr=1e-5, fused=True)
    rows = batches(model.config.vocab_size, args.shrink)
    for name, items in rows.items():
        by_hand = partial(update_from, other, optimizer, sorted_chunks(items, CARD_TOKENS))
        works = {OURS: partial(trainer.update, items), BY_HAND: by_hand}
        tokens = sum(len(item.input_ids) for item in items)
        yield name, tokens, in_turns(works, args.repeats, args.device)
    if args.trl_python:
        # TRL gets the memory of the card.
        del model, trainer, optimizer
        torch.cuda.empty_cache()
        for name, (way, updates) in trl_rates(other, rows, args).items():
            tokens = sum(len(item.input_ids) for item in rows[name])
            yield name, tokens, {way: 1 / updates.median}


def sampling_seconds(args: argparse.Namespace) -> Iterator[tuple[str, int, Rates]]:
    """Name, sampled tokens, and seconds of each load, by who samples."""
    _, tokenizer = endless("tiny")
    model = random_model(args.size, device=args.device).bfloat16()
    model.generation_config.eos_token_id = None
    client = LocalChatClient(model, tokenizer, prefix_cache_bytes=0)
    for name in LOADS:
        load = make_load(name, args.shrink)
        prompts = [render_chat(tokenizer, dialog) for dialog in load.dialogs]
        works = {
            OURS: partial(sample_ours, client, load),
            "generate": partial(sample_theirs, model, prompts, load),
        }
        yield name, sum(load.sizes), in_turns(works, args.repeats, args.device)


def main() -> None:
    """Print and keep the rates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", choices=sorted(SHAPES), default="0.5B")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shrink", type=int, default=1, help="divides the lengths of rows")
    parser.add_argument("--trl-python", help="an interpreter that can import trl")
    parser.add_argument("--trl-micro-batches", nargs="+", default=("2", "4", "8"))
    parser.add_argument("--json", type=Path, help="file that gets the rates too")
    args = parser.parse_args()
    refuse_without_device(args.device)
    kept: list[dict[str, object]] = []
    table = Table("tokens/s", OURS, "beside it", "its rate", "ratio")
    ours: Rates = {}
    with process_group(args.device):
        for part, lines in ("update", update_seconds(args)), ("sampled", sampling_seconds(args)):
            for name, tokens, seconds in lines:
                what = f"{part}, {name}"
                ours[what] = seconds.pop(OURS, ours.get(what, 0.0))
                for way, theirs in seconds.items():
                    rates = {OURS: tokens / ours[what], way: tokens / theirs}
                    kept.append({"what": what, "rates": rates})
                    figures = f"{tokens / ours[what]:,.0f}", way, f"{tokens / theirs:,.0f}"
                    table.add_row(what, *figures, f"{theirs / ours[what]:.2f}")
                if args.json:
                    args.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
