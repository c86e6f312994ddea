"""Rollouts per CPU-second with a model that costs nothing.

    python benchmarks/rollouts.py [--amount 8192]

Random cells or one answer, prompts of 200 tokens with ids and log-probs, a seed for every episode.
The limit is a loop by hand that resets, completes and steps, and records nothing.
"""

from __future__ import annotations

import argparse
from functools import partial

from harness.rates import Line, budget, print_table
from harness.rollout_loads import bare_rollouts, bench_episodes, rollouts

GAMES = (
    ("Tic-Tac-Toe", "ludic/TicTacToe-v0", 12_000.0),
    ("GSM8K", "ludic/GSM8K-v0", 18_000.0),
)


def lines(amount: int) -> list[Line]:
    """Both loads with 64 episodes at once, and with 1,024."""
    found = []
    for name, env_id, goal in GAMES:
        few = partial(rollouts, env_id, amount=amount)
        many = partial(rollouts, env_id, amount=amount, concurrency=1024)
        by_hand = ("loop by hand", partial(bare_rollouts, env_id))
        found += [
            Line(what=f"{name}: rollouts", ours=few, limit=by_hand, goal=goal),
            Line(
                what=f"{name}: rollouts, 1,024 in flight",
                ours=many,
                peers={"64 in flight": few},
                goal_ratio=0.95,
            ),
        ]
    found.append(
        Line(
            what="GSM8K: episodes of a benchmark",
            ours=partial(bench_episodes, "ludic/GSM8K-v0"),
            peers={"rollouts": partial(rollouts, "ludic/GSM8K-v0", amount=amount)},
            goal=17_000,
        )
    )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--amount", type=int, default=budget(8192, 256), help="rollouts of a batch")
    print_table("rollouts", lines(parser.parse_args().amount), rounds=5)


if __name__ == "__main__":
    main()
