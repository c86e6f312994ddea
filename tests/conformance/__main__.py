"""Compare values and gradients with other trainers, on random batches; `make conformance`.

Prints a table, and with a path as argument writes it there between two marks. Ends with 1 where a
difference exceeds the tolerance.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

# The formulas of other packages come first: their imports must not see ours half made.
import peers  # noqa: F401
import torch
from cases import Case
from openrlhf_cases import openrlhf_cases
from samples import sample
from skyrl_cases import skyrl_cases
from trl_cases import trl_cases
from verl_cases import verl_cases

SAMPLES = 200
PACKAGES = {"verl": "verl", "SkyRL": "skyrl", "OpenRLHF": "openrlhf", "TRL": "trl"}
PEERS = {
    "verl": verl_cases,
    "SkyRL": skyrl_cases,
    "OpenRLHF": openrlhf_cases,
    "TRL": trl_cases,
}
BEGIN, END = "<!-- make conformance: begin -->", "<!-- make conformance: end -->"


def differences(case: Case) -> tuple[float, float]:
    """Largest differences of values and of gradients over all samples, relative above 1."""
    value = gradient = steepest = 0.0
    for seed in range(SAMPLES):
        s = sample(seed)
        ours, theirs = case.run(s)
        if case.kind != "gradient":
            value = max(value, distance(ours.detach(), theirs.detach()))
        if case.kind in ("loss", "gradient"):
            leaves = (s.new, s.values)
            pairs = [torch.autograd.grad(x, leaves, allow_unused=True) for x in (ours, theirs)]
            moved = [[torch.zeros(1) if g is None else g for g in grads] for grads in pairs]
            steepest = max(steepest, *(float(g.abs().max()) for g in moved[1]))
            gradient = max(gradient, *map(distance, *moved))
    # Both 0 would agree too, and prove nothing.
    assert steepest or case.kind in ("correction", "advantage"), f"{case} has no gradient"
    return value, gradient


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest difference, relative to numbers above 1; infinite for nan."""
    apart = ((ours - theirs).abs() / theirs.abs().clamp(min=1)).max().item()
    return apart if apart == apart else float("inf")


def table() -> tuple[str, bool]:
    """The table, and True if all differences are within their tolerances."""
    lines, good = [], True
    for peer, cases in PEERS.items():
        lines += [
            f"### {peer} {version(PACKAGES[peer])}\n",
            f"| ours | {peer} | value | gradient | |",
            "|---|---|---|---|---|",
        ]
        for case in cases():
            value, gradient = differences(case)
            good &= max(value, gradient) <= case.tolerance
            shown = [
                "" if case.kind == "gradient" else f"{value:.0e}",
                f"{gradient:.0e}" if case.kind in ("loss", "gradient") else "",
            ]
            lines.append(f"| {' | '.join([case.ours, case.theirs, *shown, case.note])} |")
        lines.append("")
    return "\n".join(lines), good


def main() -> None:
    """Print the table, or put it into the file that is named."""
    text, good = table()
    print(text)
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
        before, _, rest = path.read_text().partition(BEGIN)
        path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
