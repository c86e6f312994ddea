"""Rows per CPU-second: rollouts of 1,000 tokens in 1, 10 and 50 turns, with their credit.

    python benchmarks/rows.py

The limit is the shortest program that checks the rollout, makes the same arrays and keeps the same
facts. Beside it: the shortest one that makes the arrays alone, where each prompt is compared with
the one before it; and what numpy takes for arrays of the token ids and log-probs of one turn.
"""

from __future__ import annotations

from functools import partial

from harness.rates import Line, print_table
from harness.row_loads import checked_arrays, copies, rows, same_arrays

LINES = tuple(
    Line(
        what=f"rows of 1,000 tokens, {turns} turns",
        ours=partial(rows, turns),
        peers={
            "ids and log-probs by numpy": copies,
            "the same arrays, unchecked": partial(same_arrays, turns),
        },
        limit=("the same arrays, checked", partial(checked_arrays, turns)),
        goal=20_000,
    )
    for turns in (1, 10, 50)
)

if __name__ == "__main__":
    print_table("rows", LINES)
