"""`ludic compare`: two benchmarks of the same tasks, side by side.

    $ ludic compare before after
    success: first before, second after
    env                tasks first second difference              95%      p
    ludic/TicTacToe-v0    20 0.600  1.000     +0.400 [+0.200, +0.600] 0.0078

The statistics are those of `ludic_gym.bench.comparison`.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ludic_gym.bench.comparison import Comparison, compare
from ludic_gym.bench.folder import read_request, read_scores, transcript_path
from ludic_gym.commands.arguments import option, parse, print_json, print_table
from ludic_gym.errors import ConfigError

EXAMPLES = """\
ludic compare results/before results/after
ludic compare results/before results/after --measure reward"""
HEADINGS = ("env", "tasks", "first", "second", "difference", "95%", "p")


@dataclass(frozen=True, kw_only=True)
class CompareArgs:
    """Compare two runs of `ludic bench --out` on the same tasks.

    Tasks are paired by their rows of data, and where there are none, by their seeds. The interval
    is from resampling tasks. p is from a sign-flip test, which for successes of one sample per task
    is McNemar's exact test.
    """

    first: Annotated[tyro.conf.Positional[Path], option("DIR")]
    """The baseline run."""
    second: Annotated[tyro.conf.Positional[Path], option("DIR")]
    """The run to compare with it."""
    measure: Literal["success", "reward"] = "success"
    """The compared quantity."""
    json: bool = False
    """Print JSON in place of the table."""


def main(argv: list[str]) -> int:
    """Run `ludic compare`; 0.

    Raises ConfigError for folders of another kind, without a common environment, or with one
    whose tasks differ.
    """
    args = parse(CompareArgs, argv, command="compare", examples=EXAMPLES)
    runs = [read_request(folder)["envs"] for folder in (args.first, args.second)]
    # In the order of the first run; envs that only one run played cannot be compared.
    shared = [env_id for env_id in runs[0] if env_id in runs[1]]
    if not shared:
        raise ConfigError(f"{args.first} and {args.second} have no environment in common")
    for env_id in shared:
        before, after = (run[env_id]["kwargs"] for run in runs)
        if before != after:
            print(f"{env_id}: played with {before} and {after}; tasks may differ", file=sys.stderr)
    found = {env_id: compared(env_id, args) for env_id in shared}
    if args.json:
        print_json({env_id: asdict(comparison) for env_id, comparison in found.items()})
        return 0
    print_table(
        HEADINGS,
        [comparison_row(env_id, comparison) for env_id, comparison in found.items()],
        title=f"{args.measure}: first {args.first}, second {args.second}",
        numbers=True,
    )
    return 0


def compared(env_id: str, args: CompareArgs) -> Comparison:
    """Compare the two runs on one env. Raises ConfigError if they share no task."""
    scores = [list(read_scores(transcript_path(run, env_id))) for run in (args.first, args.second)]
    return compare(*scores, measure=args.measure)


def comparison_row(env_id: str, c: Comparison) -> tuple[str, ...]:
    """The cells of an env's row, one for each of `HEADINGS`.

    A single task has no interval, which is "-".
    """
    interval = "-" if c.interval is None else f"[{c.interval.low:+.3f}, {c.interval.high:+.3f}]"
    # Three digits and not percent, because the measure may be a reward.
    numbers = (f"{c.first:.3f}", f"{c.second:.3f}", f"{c.difference:+.3f}")
    return (env_id, str(c.tasks), *numbers, interval, f"{c.p_value:.2g}")
