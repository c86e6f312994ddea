"""Reading prompts by the local engine, beside a plain model that is compiled as a whole.

    python benchmarks/compiled.py [--dtypes bfloat16 float32] [--layers 6] [--repeats 15]

Layers in the shape of SmolLM2-135M read 14 prompts of 70 tokens in one pass. The plain model knows
this one shape and keeps no keys and values; its weights are frozen, so that torch.compile packs
them as the engine does, and it would have to be compiled again after each change of the params. It
is the limit of what compiling the engine could bring. Medians of CPU seconds on one thread, in
turns. Needs a C++ compiler.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from harness.rates import budget
from harness.shapes import SHAPES
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from ludic_train.engine.decoder import Decoder

SHAPE = SHAPES["135M"]
PROMPTS, TOKENS = 14, 70
QUERIES, KEYS = SHAPE.num_attention_heads, SHAPE.num_key_value_heads
SIZE = SHAPE.hidden_size // QUERIES


class PlainLayer(nn.Module):
    """A layer of Llama in the fewest calls of torch."""

    def __init__(self) -> None:
        super().__init__()
        width, wide = SHAPE.hidden_size, SHAPE.intermediate_size
        self.heads = nn.Linear(width, (QUERIES + 2 * KEYS) * SIZE, bias=False)
        self.out, self.down = (nn.Linear(n, width, bias=False) for n in (QUERIES * SIZE, wide))
        self.gate, self.up = (nn.Linear(width, wide, bias=False) for _ in range(2))
        self.before, self.between = (nn.Parameter(torch.ones(width)) for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Hidden states after the layer, [prompts * tokens, width] in and out."""
        heads = self.heads(normed(x, self.before)).view(PROMPTS, TOKENS, -1, SIZE)
        both, value = heads.split((QUERIES + KEYS, KEYS), 2)
        low, high = both.chunk(2, -1)
        turned = both * cos + torch.cat((high, low), -1) * sin
        query, key = turned.split((QUERIES, KEYS), 2)
        attended = F.scaled_dot_product_attention(
            *(each.transpose(1, 2) for each in (query, key, value)), is_causal=True, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).reshape(len(x), -1))
        y = normed(x, self.between)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class PlainModel(nn.Module):
    """Layers after each other."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PlainLayer() for _ in range(num_layers))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Hidden states after all layers, [prompts * tokens, width] in and out."""
        for layer in self.layers:
            x = layer(x, cos, sin)
        return x


def normed(x: Tensor, weight: Tensor) -> Tensor:
    """Root-mean-square norm, as Llama has it."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


def engine_pass(num_layers: int, dtype: torch.dtype) -> Callable[[], object]:
    """The engine's pass over the prompts."""
    config = type(SHAPE)(**SHAPE.to_dict() | {"num_hidden_layers": num_layers})
    decoder = Decoder(AutoModelForCausalLM.from_config(config).to(dtype).eval())
    texts = torch.randint(1000, (PROMPTS, TOKENS)).tolist()
    with torch.inference_mode():
        decoder.refresh()
        decoder.reserve(PROMPTS, TOKENS)
    return torch.inference_mode()(lambda: decoder.prefill(texts, [0] * PROMPTS, 0))


def compared(dtype: torch.dtype, num_layers: int, repeats: int) -> tuple[list[float], float]:
    """CPU seconds of the engine, the plain and the compiled model; seconds of compiling."""
    plain = PlainModel(num_layers).to(dtype).eval()
    x = torch.randn(PROMPTS * TOKENS, SHAPE.hidden_size, dtype=dtype)
    factors = torch.randn(2, TOKENS, 1, SIZE, dtype=dtype)
    compiled = torch.compile(plain, dynamic=False, options={"freezing": True})
    # The engine's last layer computes last tokens alone, nearly for nothing.
    ours = engine_pass(num_layers + 1, dtype)
    works = ours, lambda: plain(x, *factors), lambda: compiled(x, *factors)
    spent: list[list[float]] = [[] for _ in works]
    with torch.no_grad():
        started = time.perf_counter()
        works[2]()
        compiling = time.perf_counter() - started
        for number in range(repeats + 2):
            for kept, work in zip(spent, works, strict=True):
                started = time.process_time()
                work()
                # The first two fill caches.
                kept += [time.process_time() - started] * (number >= 2)
    return [median(each) for each in spent], compiling


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float32"])
    parser.add_argument("--layers", type=int, default=budget(6, 1))
    parser.add_argument("--repeats", type=int, default=budget(15, 1))
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = Table("rates, of the engine's", "plain", "compiled", "seconds to compile")
    for dtype in args.dtypes:
        found, compiling = compared(getattr(torch, dtype), args.layers, args.repeats)
        rates = [f"{found[0] / each:.2f}" for each in found[1:]]
        table.add_row(dtype, *rates, f"{compiling:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
