"""`ludic compare`: two benchmarks of the same tasks, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ludic_gym.bench.comparison import Comparison, compare
from ludic_gym.bench.folder import read_request, transcript_path
from ludic_gym.bench.records import read_scores
from ludic_gym.commands.arguments import option, parse, print_table
from ludic_gym.errors import ConfigError

EXAMPLES = """\
ludic compare results/before results/after
ludic compare results/before results/after --measure reward"""
HEADINGS = ("env", "tasks", "first", "second", "difference", "95%", "p")


@dataclass(frozen=True, kw_only=True)
class CompareArgs:
    """Say how two runs of `ludic bench --out` on the same tasks differ.

    Tasks are paired by their seeds. The interval comes from resampling tasks; p is that of a
    sign-flip test, for one sample per task and successes McNemar's exact one.
    """

    first: Annotated[tyro.conf.Positional[Path], option("DIR")]
    """The run to compare with."""
    second: Annotated[tyro.conf.Positional[Path], option("DIR")]
    """The run that may be better."""
    measure: Literal["success", "reward"] = "success"
    """What is compared."""


def main(argv: list[str]) -> int:
    """Runs `ludic compare`."""
    args = parse(CompareArgs, argv, command="compare", examples=EXAMPLES)
    runs = [read_request(folder)["envs"] for folder in (args.first, args.second)]
    shared = [env_id for env_id in runs[0] if env_id in runs[1]]
    if not shared:
        raise ConfigError(f"{args.first} and {args.second} have no environment in common")
    print_table(
        HEADINGS,
        [comparison_row(env_id, compared(env_id, args)) for env_id in shared],
        title=f"{args.measure}: first {args.first}, second {args.second}",
        numbers=True,
    )
    return 0


def compared(env_id: str, args: CompareArgs) -> Comparison:
    """The two runs on one env."""
    scores = [list(read_scores(transcript_path(run, env_id))) for run in (args.first, args.second)]
    return compare(*scores, measure=args.measure)


def comparison_row(env_id: str, c: Comparison) -> tuple[str, ...]:
    """The words of an env's line, one for each of `HEADINGS`."""
    interval = "-" if c.interval is None else f"[{c.interval.low:+.3f}, {c.interval.high:+.3f}]"
    numbers = (f"{c.first:.3f}", f"{c.second:.3f}", f"{c.difference:+.3f}")
    return (env_id, str(c.tasks), *numbers, interval, f"{c.p_value:.2g}")
