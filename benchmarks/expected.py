"""Expected tokens per second, MFU and memory of updates on H100 cards, by `ludic plan`'s estimate.

    python benchmarks/expected.py [--products 650] [--attention 350] [--models 0.5B 7B 32B]

Prints the tables of docs/guides/gpu.md. Nothing here is measured: the estimate counts operations
and bytes on torch's meta device, and the speeds of the hardware are assumptions, printed with it.
MFU counts 6 per param and token and 6 S W per token and layer, of 989 TFLOP/s, for S tokens of a
row and W of all heads together.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from harness.shapes import SHAPES

from ludic_train.commands.plan import BESIDE_PRODUCTS
from ludic_train.trainer.adamw8 import moment_bytes
from ludic_train.trainer.config import Load
from ludic_train.trainer.memory_estimate import Estimate, estimate_update, model_from_config

PEAK = 989e12
# Bytes per second and card: NVLink 4 within a machine of eight, 400 Gb/s between machines.
NVLINK, NETWORK, CARDS_PER_MACHINE = 450e9, 50e9, 8
CARD_GIB, RESERVE = 80, 0.08
MICRO_TOKENS = 16_384
CARDS = (1, 8, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """An update on so many cards. gib: of each card, by the options that it needs."""

    cards: int
    gib: float
    options: str
    tokens_per_second: float | None
    mfu: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Operations per second of matrix products, and of attention."""

    products: float
    attention: float


def attended(name: str, row_tokens: int) -> float:
    """Operations of causal attention per token in a forward pass, all layers together."""
    shape = SHAPES[name]
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    width = shape.num_attention_heads * head_dim
    return 2.0 * row_tokens * width * shape.num_hidden_layers


def mfu_of(params: int, forward_attention: float, tokens_per_second: float) -> float:
    """Share of a card's peak: forward and backward pass, without recomputation."""
    return (6 * params + 3 * forward_attention) * tokens_per_second / PEAK


def expected(
    estimate: Estimate,
    moments: int,
    cards: int,
    *,
    micro_tokens: int,
    forward_attention: float,
    speeds: Speeds,
) -> Expected:
    """The update of a model that is spread over the cards, with the options that make it fit.

    estimate: on two ranks, with recomputation, of one micro-batch. moments: bytes of AdamW's at 8
        bits. forward_attention: operations per token.
    """
    kept = {name: 2 * estimate.bytes[name] / cards for name in ("params", "gradients", "optimizer")}
    alive = estimate.bytes["activations"] + estimate.bytes["gathered"]
    usual = sum(kept.values()) + alive
    forms = [(usual, ""), (usual - kept["optimizer"] + moments / cards, "--adamw-bits 8")]
    room = (1 - RESERVE) * CARD_GIB * 2**30
    fits = next((form for form in forms if form[0] <= room), None)
    if fits is None:
        # Not timed: a host's memory and PCIe decide, which differ from machine to machine.
        return Expected(
            cards=cards, gib=alive / 2**30, options="--offload", tokens_per_second=None, mfu=None
        )
    # The estimate's two ranks share the operations of one micro-batch.
    attention = 2 * estimate.attention_flops
    computing = BESIDE_PRODUCTS * (2 * estimate.flops - attention) / speeds.products
    computing += attention / speeds.attention
    # bfloat16 params gathered for the forward and the backward pass, float32 gradients added up.
    traffic = (2 * 2 + 4) * estimate.params * (cards - 1) / cards
    moving = traffic / (NVLINK if cards <= CARDS_PER_MACHINE else NETWORK)
    # FSDP2 moves the next block while it computes one.
    speed = cards * micro_tokens / max(computing, moving)
    mfu = mfu_of(estimate.params, forward_attention, speed / cards)
    size, options = fits
    return Expected(
        cards=cards, gib=size / 2**30, options=options, tokens_per_second=speed, mfu=mfu
    )


def estimate_of_shape(name: str, micro_tokens: int, row_tokens: int) -> tuple[Estimate, int]:
    """The estimate of one micro-batch on two ranks, and bytes of AdamW's moments at 8 bits."""
    model = model_from_config(SHAPES[name], torch.bfloat16)
    load = Load(tokens=micro_tokens, micro_tokens=micro_tokens, row_tokens=row_tokens, world_size=2)
    moments = sum(map(moment_bytes, model.parameters()))
    return estimate_update(model, load, recompute=True), moments


def line(name: str, rows: str, found: Expected) -> str:
    """A row of the table in Markdown."""
    speed, mfu = "not estimated", ""
    if found.tokens_per_second is not None and found.mfu is not None:
        # Three digits: the assumptions do not bear more.
        speed, mfu = f"{float(f'{found.tokens_per_second:.3g}'):,.0f}", f"{found.mfu:.0%}"
    options = f"`{found.options}`" if found.options else ""
    return f"| {name} | {rows} | {found.cards} | {found.gib:.0f} | {options} | {speed} | {mfu} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["0.5B", "7B", "32B"], choices=SHAPES)
    parser.add_argument("--products", type=float, default=650, help="TFLOP/s of matrix products")
    parser.add_argument("--attention", type=float, default=350, help="TFLOP/s of attention")
    args = parser.parse_args()
    speeds = Speeds(products=args.products * 1e12, attention=args.attention * 1e12)
    print(f"matrix products at {args.products:g} TFLOP/s, {BESIDE_PRODUCTS:g} times their time;")
    print(f"attention at {args.attention:g} TFLOP/s\n")
    print("| model | tokens of a row | cards | GiB per card | options | tokens/s | MFU |")
    print("|---|---|---|---|---|---|---|")
    cases = [(name, MICRO_TOKENS, 4096, CARDS) for name in args.models]
    # The lengths of prime-rl's published rows.
    cases += [("0.6B", tokens, tokens, (1,)) for tokens in (16_384, 65_536)]
    for name, micro_tokens, row_tokens, counts in cases:
        estimate, moments = estimate_of_shape(name, micro_tokens, row_tokens)
        for cards in counts:
            found = expected(
                estimate,
                moments,
                cards,
                micro_tokens=micro_tokens,
                forward_attention=attended(name, row_tokens),
                speeds=speeds,
            )
            print(line(name, f"{row_tokens:,}", found), flush=True)


if __name__ == "__main__":
    main()
