"""Sweeps of `ludic bench`: several models on the same tasks, in one table.

$ ludic bench ludic/Arithmetic-v0 --model openai/A --model openai/B --out results
ludic/Arithmetic-v0: difference from openai/A
run      rank episodes  rate         95%   diff              95%     p
openai/B    1      100 62.0% [52.2, 70.9] +0.120 [+0.030, +0.210] 0.017
openai/A    2      100 50.0% [40.4, 59.6]
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ludic_gym.bench.comparison import (
    Board,
    Run,
    Setup,
    board_table,
    boards,
    boards_json,
)
from ludic_gym.bench.evaluation import EnvPlan
from ludic_gym.bench.folder import REQUEST
from ludic_gym.bench.report import cut_off_lines, error_lines, model_lines, stopped_lines
from ludic_gym.bench.result import Tally
from ludic_gym.commands.arguments import print_json, print_table, readable_env_errors, screen
from ludic_gym.commands.bench_args import (
    BenchArgs,
    extra_body_of,
    params_of,
    plans_of,
    policy_name,
    sampling_of,
)
from ludic_gym.commands.bench_run import run_all
from ludic_gym.commands.sweep_file import Entrant
from ludic_gym.errors import ConfigError, LudicError
from ludic_gym.sampling import check_sampling


@dataclass(slots=True, kw_only=True)
class Outcome:
    """An entrant's scores by env, and the error that ended its run; "" for none."""

    entrant: Entrant
    tallies: dict[str, Tally] = field(default_factory=dict)
    failure: str = ""


def sweep(entered: Sequence[Entrant], args: BenchArgs) -> list[Outcome]:
    """Play the entrants one after the other, print the boards; the outcomes.

    An entrant whose run fails costs only itself. Raises ConfigError for arguments that no entrant
    can be played with, and KeyboardInterrupt after the results of the finished episodes.
    """
    # The runs are folders in it, and one run beside others would be read as theirs.
    if args.out is not None and (args.out / REQUEST).exists():
        raise ConfigError(f"{args.out} holds one run; name another folder for several")
    for entrant in entered:
        # All entrants first: an error of the last one must not cost the tokens of the others.
        check_sampling(sampling_of(entrant.args))
        params_of(entrant.args)
        extra_body_of(entrant.args)
    # Of one entrant: all have the same environments and tasks.
    with readable_env_errors():
        plans = plans_of(entered[0].args)
    outcomes: list[Outcome] = []
    try:
        for number, entrant in enumerate(entered, 1):
            outcomes.append(Outcome(entrant=entrant))
            print(f"[{number}/{len(entered)}] {entrant.name}", file=sys.stderr, flush=True)
            play(outcomes[-1])
    except KeyboardInterrupt:
        show(outcomes, plans, args)
        raise
    show(outcomes, plans, args)
    return outcomes


def play(outcome: Outcome) -> None:
    """Play one entrant; its scores and its failure are put into the outcome."""
    try:
        asyncio.run(run_all(outcome.entrant.args, outcome.tallies))
    # A wrong key, a closed port, a folder of another run: the other entrants are not to blame.
    except LudicError as error:
        outcome.failure = " ".join(str(error).split())
        print(f"{outcome.entrant.name}: {outcome.failure}", file=sys.stderr)


def show(outcomes: Sequence[Outcome], plans: Mapping[str, EnvPlan], args: BenchArgs) -> None:
    """Print a board per env, and a line per failure; JSON with `--json`."""
    runs = [run_of_outcome(outcome, plans) for outcome in outcomes]
    found = boards(runs, baseline=outcomes[0].entrant.name)
    if args.json:
        print_json(sweep_json(outcomes, found))
        return
    for board in found:
        headings, *rows = board_table(board)
        print_table(headings, rows, title=str(board), numbers=True)
    console = screen()
    for outcome in outcomes:
        results = {
            f"{outcome.entrant.name}, {env_id}": tally.result()
            for env_id, tally in outcome.tallies.items()
        }
        for line in model_lines(results):
            console.print(line, markup=False)
        failures = [f"{outcome.entrant.name}: {outcome.failure}"] if outcome.failure else []
        of_episodes = [*error_lines(results), *stopped_lines(results), *cut_off_lines(results)]
        for line in [*failures, *of_episodes]:
            console.print(line, style="red", markup=False)
    if args.out is not None:
        console.print(f"transcripts: {args.out}; to view them: ludic view {args.out}", markup=False)


def run_of_outcome(outcome: Outcome, plans: Mapping[str, EnvPlan]) -> Run:
    """The outcome as a run on the boards: in every env, also where it has no score."""
    tallies = outcome.tallies
    return Run(
        name=outcome.entrant.name,
        policy=policy_name(outcome.entrant.args),
        scores={
            Setup(
                env_id=env_id,
                kwargs=json.dumps(plan.kwargs, sort_keys=True),
                data=plan.origin.data,
            ): tallies[env_id].scores if env_id in tallies else ()
            for env_id, plan in plans.items()
        },
    )


def sweep_json(outcomes: Sequence[Outcome], found: Sequence[Board]) -> dict[str, Any]:
    """The sweep as JSON: the boards, and each run with its failure and its results by env."""
    return {
        "boards": boards_json(found),
        "runs": {
            outcome.entrant.name: {
                "policy": policy_name(outcome.entrant.args),
                "failure": outcome.failure,
                "results": {
                    env_id: asdict(tally.result()) for env_id, tally in outcome.tallies.items()
                },
            }
            for outcome in outcomes
        },
    }
