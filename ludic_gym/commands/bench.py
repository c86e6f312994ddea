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
import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from ludic_gym.bench.folder import open_folder, read_request, write_parquet, write_results
from ludic_gym.bench.policies import is_provided, open_policy
from ludic_gym.bench.provenance import provenance
from ludic_gym.bench.records import ludic_version
from ludic_gym.bench.report import (
    cut_off_lines,
    error_lines,
    model_lines,
    pass_lines,
    percent,
    result_table,
    spent_text,
    stopped_lines,
)
from ludic_gym.bench.result import BenchResult
from ludic_gym.bench.session import EnvPlan, Play, named_envs, play_env, rescoring_plans
from ludic_gym.bench.tally import Tally
from ludic_gym.bench.tasks import MAX_TURNS, bench_tasks
from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    option,
    parse,
    print_table,
    readable_env_errors,
    screen,
)
from ludic_gym.commands.repeat import find_record, repeated, show_repetition
from ludic_gym.errors import ConfigError
from ludic_gym.policies.reference import RandomPolicy
from ludic_gym.policies.served import ServedPolicy
from ludic_gym.types import MakePolicy, Sampling

# Arguments that stand in bench.json under their own names.
SETTINGS = ("model", "param", "extra_body", "seed", "samples", "max_turns", "attempts")
EXAMPLES = """\
ludic bench ludic/TicTacToe-v0 --policy random --env-kwargs opponent=perfect
ludic bench games --policy oracle --out results
ludic bench ludic/GSM8K-v0 --data test.jsonl --policy http://localhost:8000/v1 --temperature 0
ludic bench ludic/Arithmetic-v0 --policy my_agents:make --samples 4 --fail-under 0.9
ludic bench --rescore results --env-kwargs strict=true --out rescored
ludic bench ludic/GSM8K-v0 --model openai/NAME --param temperature=none
ludic bench --repeat results/ludic-GSM8K-v0.jsonl:7"""


@dataclass(frozen=True, kw_only=True)
class BenchArgs:
    """Play environments with a policy and print the results.

    With --out, the same command continues where it was stopped.
    """

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], option("ID|SUITE ...")] = ()
    """Environment ids or suites, as in `ludic list`."""
    policy: Annotated[str | None, option("POLICY")] = None
    """oracle, random (the default), the http(s) address of an OpenAI-style server, a run folder,
    ludic-small (made by `ludic model`), or module:function, which is called with the env and
    returns a policy."""
    model: Annotated[str | None, option("NAME")] = None
    """The server's name for its model; by default the one it serves. Without --policy,
    openai/NAME, anthropic/NAME, openrouter/NAME, vllm/NAME or ollama/NAME is a model of that
    server, and hf/NAME or hf/FOLDER one that this process loads."""
    param: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, option("NAME=VALUE")] = ()
    """Set a field of the server's requests, or leave it out by NAME=none; may be repeated."""
    extra_body: Annotated[str | None, option("JSON")] = None
    """A JSON object of further fields of the server's requests."""
    episodes: Annotated[int | None, option("N")] = None
    """Tasks per env; by default every row once, or 100 for an env without rows."""
    samples: int = 1
    """Episodes per task, which share its env seed; from 2 on, pass@k and pass^k are printed."""
    data: Annotated[str | None, option("PATH")] = None
    """Rows of a data set env: a file (.jsonl, .jsonl.gz, .parquet), a folder or a hub id."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    seed: int = 0
    """Task i plays and samples with this seed + i."""
    concurrency: int = 64
    """Episodes in flight."""
    timeout_s: Annotated[float | None, option("SECONDS")] = None
    """Seconds after which an episode counts as failed; by default never."""
    max_turns: int = MAX_TURNS
    """Turns after which an episode is truncated."""
    attempts: Annotated[int | None, option("N")] = None
    """Replies without an action after which an episode fails; by default 1 in single-turn envs, no
    limit in others."""
    temperature: float = 1.0
    """Sampling temperature of a model; 0 is greedy."""
    top_p: float = 1.0
    """Probability mass of nucleus sampling."""
    max_tokens: int = 256
    """Limit of tokens per reply."""
    out: Annotated[Path | None, option("DIR")] = None
    """Folder for the transcripts: one jsonl file per env, one line per episode."""
    rescore: Annotated[Path | None, option("DIR")] = None
    """Repeat the decisions of this earlier run, without a model, in the current envs and with these
    --env-kwargs."""
    repeat: Annotated[str | None, option("FILE:INDEX")] = None
    """Play one recorded episode once more, with its policy and model unless others are given, and
    print both results."""
    price: Annotated[tuple[float, float] | None, option("IN OUT")] = None
    """Cost of a million tokens of prompts and of completions, for the bar and the results."""
    parquet: bool = False
    """Write DIR/episodes.parquet too, a row per episode, at the end."""
    fail_under: Annotated[float | None, option("RATE")] = None
    """Exit with 1 if an env's success rate is below this."""


def main(argv: list[str]) -> int:
    """Run `ludic bench`; 1 if an episode failed, or a success rate is under `--fail-under`.

    Raises ConfigError for arguments that contradict each other, and KeyboardInterrupt after the
    results of the finished episodes.
    """
    args = parse(BenchArgs, argv, command="bench", examples=EXAMPLES)
    if bool(args.ids) + (args.rescore is not None) + (args.repeat is not None) != 1:
        raise ConfigError(
            "name an environment or a suite (see `ludic list`), or a run to --rescore, "
            "or an episode to --repeat"
        )
    if args.repeat is not None:
        playing = repeated(
            find_record(args.repeat),
            policy=args.policy,
            model=args.model,
            params=params_of(args),
            extra_body=extra_body_of(args),
            timeout_s=args.timeout_s,
        )
        return show_repetition(asyncio.run(playing))
    if args.parquet and args.out is None:
        raise ConfigError("--parquet writes into the folder of --out: add --out")
    tallies: dict[str, Tally] = {}
    try:
        asyncio.run(run_all(args, tallies))
    except KeyboardInterrupt:
        # Finished episodes are worth their time: print them before the exit code says 130.
        show_results(tallies, args)
        hint = "" if args.out is None else "; the same command continues from here"
        print(f"interrupted: these are the finished episodes{hint}", file=sys.stderr)
        raise
    results = show_results(tallies, args)
    low = too_low(results, args.fail_under)
    for line in low:
        screen().print(line, style="red", markup=False)
    return 1 if low or any(result.errors for result in results.values()) else 0


async def run_all(args: BenchArgs, tallies: dict[str, Tally]) -> None:
    """Play one env after the other; each fills its tally as its episodes end.

    tallies: filled here and not returned, so that Ctrl-C leaves the finished episodes to the
        caller.
    """
    with readable_env_errors():
        plans = plans_of(args)
    # Every job of a rescoring brings its own policy.
    opened = open_policy(
        policy_name(args), args.model, params=params_of(args), extra_body=extra_body_of(args)
    )
    async with nullcontext(RandomPolicy) if args.rescore else opened as make_policy:
        served = None
        if isinstance(make_policy, ServedPolicy):
            served = await make_policy.probe(sampling_of(args))
            for name, new in make_policy.client.renamed.items():
                change = "it is left out" if new is None else f"it is sent as {new!r}"
                print(f"the server refuses {name!r}: {change}", file=sys.stderr)
        play = Play(
            make_policy=make_policy,
            policy=policy_name(args),
            folder=args.out,
            concurrency=args.concurrency,
            timeout_s=args.timeout_s,
            price=args.price,
            model=None if served is None else served.model,
        )
        await play_all(args, plans, play, tallies)
    if args.out is not None and args.parquet:
        write_parquet(args.out)


async def play_all(
    args: BenchArgs, plans: Mapping[str, EnvPlan], play: Play, tallies: dict[str, Tally]
) -> None:
    """Play the plans into the folder of `--out`, if there is one, and write its results."""
    # Claimed before the first episode: a second process must fail before it pays for tokens.
    renamed = play.make_policy.client.renamed if isinstance(play.make_policy, ServedPolicy) else {}
    wanted = {**request(args, plans), "served": play.model, "renamed": renamed}
    with nullcontext() if args.out is None else open_folder(args.out, wanted):
        for env_id, plan in plans.items():
            tally = tallies.setdefault(env_id, Tally())
            note = partial(bar_note, tally, play.make_policy, args.price)
            await play_env(env_id, plan, play, tally=tally, note=note)
            # The other envs have the same server.
            if tally.stopped:
                break
        # Inside the claim: no other process may change the folder before its results are written.
        if args.out is not None:
            write_results(args.out, {name: tally.result() for name, tally in tallies.items()})


def bar_note(tally: Tally, make_policy: MakePolicy, price: tuple[float, float] | None) -> str:
    """The text behind the bar: success rate, and the tokens of a policy behind a server.

    price: cost of a million tokens of prompts, and of completions; None shows no cost.
    """
    spent = spent_text(make_policy.usage, price) if isinstance(make_policy, ServedPolicy) else ""
    return f"success {percent(tally.success_rate)} {spent}"


def policy_name(args: BenchArgs) -> str:
    """Name of the policy in tables and records; that of the earlier run when it is rescored."""
    if args.rescore is None:
        if args.policy is None and args.model is not None and is_provided(args.model):
            return args.model
        return args.policy or "random"
    return str(read_request(args.rescore)["policy"])


def request(args: BenchArgs, plans: Mapping[str, EnvPlan]) -> Mapping[str, Any]:
    """All settings that determine the episodes, as the JSON object of the folder's bench.json.

    plans: the plan of each env, by id.
    """
    return {
        **{name: getattr(args, name) for name in SETTINGS},
        "ludic": ludic_version(),
        "policy": policy_name(args),
        "rescored": None if args.rescore is None else str(args.rescore),
        "envs": {
            name: {
                "kwargs": plan.kwargs,
                "episodes": plan.count,
                "environment": plan.origin.environment,
                "data": plan.origin.data,
            }
            for name, plan in plans.items()
        },
        # Not concurrency, price or time limits: they may change when the run continues.
        "sampling": {key: getattr(args, key) for key in ("temperature", "top_p", "max_tokens")},
    }


def plans_of(args: BenchArgs) -> Mapping[str, EnvPlan]:
    """The plan of each env, by id.

    Raises ConfigError for arguments that cannot work, and Gymnasium's errors for unknown ids.
    """
    kwargs = dict(keyword_arguments(args.env_kwargs))
    if args.rescore is not None:
        return rescoring_plans(args.rescore, kwargs)
    if args.data is not None:
        kwargs["data"] = args.data
    plans = {}
    for env_id, suggested in named_envs(args.ids).items():
        # Tasks keep the module's name, so that their records can be played again anywhere.
        env_name(env_id)
        tasks = bench_tasks(
            env_id,
            # The user's last, so that --env-kwargs replaces the split that a suite names.
            kwargs={**suggested, **kwargs},
            episodes=args.episodes,
            seed=args.seed,
            sampling=sampling_of(args),
            max_turns=args.max_turns,
            attempts=args.attempts,
            samples=args.samples,
        )
        plans[env_id] = EnvPlan(
            jobs=tasks,
            count=len(tasks),
            kwargs={**suggested, **kwargs},
            origin=provenance(env_id, {**suggested, **kwargs}),
        )
    return plans


def params_of(args: BenchArgs) -> dict[str, Any]:
    """The fields of `--param`, None for one that is left out."""
    given = keyword_arguments(args.param)
    return {name: None if value == "none" else value for name, value in given.items()}


def extra_body_of(args: BenchArgs) -> dict[str, Any]:
    """The object of `--extra-body`. Raises ConfigError for any other text."""
    try:
        value = json.loads(args.extra_body or "{}")
    except json.JSONDecodeError as error:
        raise ConfigError(f"--extra-body is no JSON ({error}): {args.extra_body!r}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"--extra-body is a JSON object, got {args.extra_body!r}")
    return value


def sampling_of(args: BenchArgs) -> Sampling:
    """The sampling parameters of all episodes."""
    return Sampling(temperature=args.temperature, top_p=args.top_p, max_tokens=args.max_tokens)


def show_results(tallies: Mapping[str, Tally], args: BenchArgs) -> Mapping[str, BenchResult]:
    """Print the table and the lines below it; the results, by env.

    tallies: the scores of each env, by id; those of an interrupted run too.
    """
    results = {env_id: tally.result() for env_id, tally in tallies.items()}
    headings, *rows = result_table(results)
    print_table(headings, rows, title=f"policy: {policy_name(args)}", numbers=True)
    console = screen()
    for line in [*pass_lines(results), *model_lines(results)]:
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
