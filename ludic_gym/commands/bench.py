"""`ludic bench`: play environments with a policy, print a table of results.

    $ ludic bench ludic/TicTacToe-v0 --policy random --episodes 20 --out results
    policy: random
    env                successes  rate          95% reward           95% random
    ludic/TicTacToe-v0     12/20 60.0% [38.7, 78.1]   0.25 [-0.15, 0.65]  58.5%
    transcripts: results; to view them: ludic view results

The columns are the success rate and the mean reward, each with its interval, and the success rate
of random play. The format of the folder is described in `ludic_gym.bench.folder`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import asdict

from rich.console import Console

from ludic_gym.bench.report import (
    cut_off_lines,
    error_lines,
    metric_lines,
    model_lines,
    pass_lines,
    result_table,
    stopped_lines,
)
from ludic_gym.bench.result import BenchResult, Tally
from ludic_gym.commands.arguments import parse, print_json, print_table, screen
from ludic_gym.commands.bench_args import (
    BenchArgs,
    extra_body_of,
    model_of,
    params_of,
    policy_name,
)
from ludic_gym.commands.bench_run import run_all
from ludic_gym.commands.repeat import find_record, repeated, show_repetition
from ludic_gym.commands.sweep import sweep
from ludic_gym.commands.sweep_file import RunTable, entrants, read_sweep
from ludic_gym.errors import ConfigError

EXAMPLES = """\
ludic bench ludic/TicTacToe-v0 --policy random --env-kwargs opponent=perfect
ludic bench games --policy oracle --out results
ludic bench ludic/GSM8K-v0 --data test.jsonl --policy http://localhost:8000/v1 --temperature 0
ludic bench ludic/Arithmetic-v0 --policy my_agents:make --samples 4 --fail-under 0.9
ludic bench --rescore results --env-kwargs strict=true --out rescored
ludic bench ludic/GSM8K-v0 --model openai/NAME --param temperature=none
ludic bench core --model openai/ONE --model openai/TWO --out results
ludic bench --config sweep.toml
ludic bench --repeat results/ludic-GSM8K-v0.jsonl:7"""


def main(argv: list[str]) -> int:
    """Run `ludic bench`; 1 if an episode failed, or a success rate is under `--fail-under`.

    Raises ConfigError for arguments that contradict each other, and KeyboardInterrupt after the
    results of the finished episodes.
    """
    args = parse(BenchArgs, argv, command="bench", examples=EXAMPLES)
    tables: tuple[RunTable, ...] = ()
    if args.config is not None:
        usual, tables = read_sweep(args.config)
        args = parse(BenchArgs, argv, command="bench", examples=EXAMPLES, default=usual)
    if bool(args.ids) + (args.rescore is not None) + (args.repeat is not None) != 1:
        raise ConfigError(
            "name an environment or a suite (see `ludic list`), or a run to --rescore, "
            "or an episode to --repeat"
        )
    if args.fail_under is not None and not 0 <= args.fail_under <= 1:
        raise ConfigError(f"--fail-under is a rate from 0 to 1, got {args.fail_under:g}")
    if args.parquet and args.out is None:
        raise ConfigError("--parquet writes into the folder of --out: add --out")
    if args.repeat is not None and args.json:
        raise ConfigError("--repeat prints no JSON: leave out --json")
    if args.repeat is not None:
        playing = repeated(
            find_record(args.repeat),
            policy=args.policy,
            model=model_of(args),
            params=params_of(args),
            extra_body=extra_body_of(args),
            timeout_s=args.timeout_s,
        )
        return show_repetition(asyncio.run(playing))
    if tables or (len(args.model) > 1 and args.rescore is None):
        outcomes = sweep(entrants(args, tables), args)
        results = {
            f"{outcome.entrant.name}, {env_id}": tally.result()
            for outcome in outcomes
            for env_id, tally in outcome.tallies.items()
        }
        failed = any(outcome.failure for outcome in outcomes)
        return exit_code(results, args) or int(failed)
    tallies: dict[str, Tally] = {}
    try:
        asyncio.run(run_all(args, tallies))
    except KeyboardInterrupt:
        # Finished episodes are worth their time: print them before the exit code says 130.
        show_results(tallies, args)
        hint = "" if args.out is None else "; the same command continues from here"
        print(f"interrupted: these are the finished episodes{hint}", file=sys.stderr)
        raise
    return exit_code(show_results(tallies, args), args)


def exit_code(results: Mapping[str, BenchResult], args: BenchArgs) -> int:
    """1 if an episode failed, or a success rate is below the required one, which is printed."""
    low = too_low(results, args.fail_under)
    # Standard output is the JSON.
    console = Console(stderr=True) if args.json else screen()
    for line in low:
        console.print(line, style="red", markup=False)
    return 1 if low or any(result.errors for result in results.values()) else 0


def show_results(tallies: Mapping[str, Tally], args: BenchArgs) -> Mapping[str, BenchResult]:
    """Print the table and the lines below it; the results, by env.

    tallies: the scores of each env, by id; those of an interrupted run too.
    """
    results = {env_id: tally.result() for env_id, tally in tallies.items()}
    if args.json:
        print_json(
            {"policy": policy_name(args), "results": {e: asdict(r) for e, r in results.items()}}
        )
        return results
    headings, *rows = result_table(results, args.env_kwargs)
    print_table(headings, rows, title=f"policy: {policy_name(args)}", numbers=True)
    console = screen()
    for line in [*metric_lines(results), *pass_lines(results), *model_lines(results)]:
        console.print(line, markup=False)
    for line in [*error_lines(results), *stopped_lines(results), *cut_off_lines(results)]:
        console.print(line, style="red", markup=False)
    if args.out is not None:
        console.print(f"transcripts: {args.out}; to view them: ludic view {args.out}", markup=False)
    return results


def too_low(results: Mapping[str, BenchResult], least: float | None) -> list[str]:
    """A line for every env whose success rate is below the required one.

    least: from 0 to 1; None requires nothing.
    """
    # `not >=` instead of `<`: the rate of an env without a finished episode is nan.
    return [
        f"{env_id}: success rate {result.success_rate:.1%} is not at least {least:.1%}"
        for env_id, result in results.items()
        if least is not None and not result.success_rate >= least
    ]
