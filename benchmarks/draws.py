"""Milliseconds to draw a token per row from logits, by the compiled kernel and by torch.

    python benchmarks/draws.py [--rows 16]

Logits are normal with a deviation of 4, so that top_p 0.95 keeps a hundredth of them, or of 1,
where it keeps three quarters. Each number is the median of rounds in which both take turns, in CPU
time of one thread. "off" is the greatest error of a log-prob, beside float64.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median

import numpy as np
import torch
from harness.rates import budget
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ludic_gym.types import Sampling
from ludic_train.engine.cpu_kernels import Kernels, kernels_for
from ludic_train.engine.sampling import Draws, choose, draws_of, log_distribution

VOCABULARIES = (49_152, 151_936)
CUTS = {
    "all tokens": Sampling(),
    "temperature 0.6": Sampling(temperature=0.6),
    "top_k 20": Sampling(top_k=20),
    "top_p 0.95": Sampling(top_p=0.95),
    "top_k 20, top_p 0.95": Sampling(top_k=20, top_p=0.95),
    "min_p 0.05": Sampling(min_p=0.05),
}
DEVIATIONS = (4.0, 1.0)


def drawn(
    logits: Tensor, draws: Draws, uniform: np.ndarray, kernels: Kernels | None
) -> tuple[float, float]:
    """Milliseconds of a draw, and the greatest error of its log-probs."""
    started = time.process_time()
    found = choose(logits, draws, uniform, kernels)
    took = time.process_time() - started
    inside = log_distribution(logits, draws).isfinite()
    scaled = logits.double() / torch.from_numpy(draws["temperature"]).double()[:, None]
    exact = scaled.masked_fill(~inside, -torch.inf).log_softmax(-1)
    error = found.logprobs - exact.gather(1, found.ids[:, None])[:, 0]
    return 1000 * took, float(error.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=16)
    rows = parser.parse_args().rows
    torch.set_num_threads(1)
    kernels = kernels_for(torch.zeros(1), 64)
    if kernels is None:
        sys.exit("there are no kernels to measure here")
    table = Table("of", "tokens", "deviation", "kernel", "torch", "ratio", "off", "torch's")
    for size in VOCABULARIES[: budget(2, 1)]:
        for deviation in DEVIATIONS:
            logits = deviation * torch.randn(rows, size, generator=torch.Generator().manual_seed(0))
            uniform = np.random.default_rng(0).random(rows)
            for name, sampling in CUTS.items():
                draws = draws_of([sampling] * rows)
                rounds = [
                    [drawn(logits, draws, uniform, each) for each in (kernels, None)]
                    for _ in range(budget(5, 1))
                ]
                ours, theirs = (median(round_[i][0] for round_ in rounds) for i in (0, 1))
                errors = [f"{error:.0e}" for _, error in rounds[0]]
                numbers = f"{ours:.2f}", f"{theirs:.2f}", f"{theirs / ours:.1f}"
                table.add_row(name, f"{size:,}", f"{deviation:g}", *numbers, *errors)
    Console().print(table)


if __name__ == "__main__":
    main()
