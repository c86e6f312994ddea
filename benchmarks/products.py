"""Matrix products of decoding steps alone, beside the local engine and `generate`.

    python benchmarks/products.py [--models 10M ...] [--loads "batch 16" ...] [--part 4]

All linear layers of a model are applied to the tokens of prompts and then, step by step, to the
rows of a batch, in the layout of the engine, and nothing else: an engine without attention, norms
and sampling. It takes each matrix apart; the engine joins those of one input, which is faster where
products are short. Tokens per CPU-second of one thread, medians of rounds in turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from sampler import (
    LARGE,
    MODELS,
    Load,
    endless,
    make_loads,
    rates,
    sample_ours,
    sample_theirs,
)
from torch import nn

from ludic_train.inference.client import LocalChatClient
from ludic_train.inference.layers import Map, _linear_in, layout_of
from ludic_train.models.chat_template import render_chat

# Loads whose completions are of one length.
EQUAL = ("batch 1", "batch 16", "batch 64")
# More at once are slower in the layout of the engine.
MANY_ROWS = 256


def linear_maps(model: nn.Module) -> list[tuple[Map, int]]:
    """The linear layers in the layout of the engine, each with the width of its input."""
    layout = layout_of(model)
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return [(_linear_in(linear, layout), linear.in_features) for linear in linears]


@torch.inference_mode()
def products(maps: Sequence[tuple[Map, int]], prompt: int, load: Load, dtype: torch.dtype) -> int:
    """Tokens of completions of one length, each layer applied as often as a sampler has to.

    prompt: tokens of all prompts together; the head, which is last, reads the last ones alone.
    """
    rows, steps = len(load.sizes), load.sizes[0]
    for number, (apply, width) in enumerate(maps):
        first = torch.randn(prompt if number < len(maps) - 1 else rows, width, dtype=dtype)
        for part in first.split(MANY_ROWS):
            apply(part)
        x = torch.randn(rows, width, dtype=dtype)
        for _ in range(steps - 1):
            apply(x)
    return rows * steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=[*MODELS, *LARGE], default=["10M"])
    parser.add_argument("--loads", nargs="+", choices=EQUAL, default=EQUAL[1:])
    parser.add_argument("--part", type=int, default=4, help="divides the tokens of completions")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(
        "tokens/s", "products", "engine", "generate", "engine / generate", "products / generate"
    )
    for name in args.models:
        model, tokenizer = endless(name)
        client, maps = LocalChatClient(model, tokenizer), linear_maps(model)
        for label, load in make_loads(args.part).items():
            if label not in args.loads:
                continue
            prompts = [render_chat(tokenizer, dialog) for dialog in load.dialogs]
            works = [
                partial(products, maps, sum(map(len, prompts)), load, model.dtype),
                partial(sample_ours, client, load),
                partial(sample_theirs, model, prompts, load),
            ]
            bound, ours, theirs = (rate.median for rate in rates(works, args.repeats))
            figures = [f"{rate:,.0f}" for rate in (bound, ours, theirs)]
            ratios = f"{ours / theirs:.2f}", f"{bound / theirs:.2f}"
            table.add_row(f"{name}, {label}", *figures, *ratios)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
