"""Rows per CPU-second: rollouts of 1,000 tokens in 1, 10 and 50 turns, with their credit.

    python benchmarks/rows.py

The limit is what numpy takes to make arrays of the token ids and log-probs of one turn.
"""

from __future__ import annotations

from functools import partial

from harness.rates import Line, print_table
from harness.row_loads import copies, rows

LINES = tuple(
    Line(
        what=f"rows of 1,000 tokens, {turns} turns",
        ours=partial(rows, turns),
        limit=("arrays of ids and log-probs", copies),
        goal=20_000,
    )
    for turns in (1, 10, 50)
)

if __name__ == "__main__":
    print_table("rows", LINES)
