"""`ludic bench`: play environments with policies, print a table of results.

    $ ludic bench ludic/TicTacToe-v0 --policy random --episodes 20 --out results
    policy: random
    env                successes  rate          95% reward           95% random
    ludic/TicTacToe-v0      6/20 30.0% [14.5, 51.9]  -0.35 [-0.75, 0.05]  30.0%
    transcripts: results; to view them: ludic view results

The columns are the success rate and the mean reward, each with its interval, and the success rate
of random play. The format of the folder is described in `ludic_gym.bench.folder`. Several policies
play the same tasks, and get a table for each environment:

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
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import cast

import pettingzoo
from rich.console import Console

from ludic_gym.bench.comparison import (
    Run,
    Setup,
    board_lines,
    board_table,
    boards,
    boards_json,
    no_rank,
)
from ludic_gym.bench.evaluation import EnvPlan, Play, has_tools, limit_lines, play_env
from ludic_gym.bench.folder import REQUEST, open_folder, transcript_path, write_results
from ludic_gym.bench.report import (
    fault_lines,
    figure_lines,
    note_lines,
    percent,
    progress_bar,
    result_table,
    spent_text,
)
from ludic_gym.bench.result import BenchResult, Tally
from ludic_gym.bench.tournament import bradley_terry, game_of, ratings_table, round_robin
from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    parse,
    print_json,
    print_table,
    readable_env_errors,
    screen,
)
from ludic_gym.commands.bench_args import (
    COMMON,
    FOREIGN,
    SAMPLING,
    BenchArgs,
    limits_of,
    plans_of,
    request,
    runs_of,
    settings_like,
)
from ludic_gym.errors import ConfigError, LudicError
from ludic_gym.models import Model, model, open_agent
from ludic_gym.records import open_records
from ludic_gym.rollout.episodes import MakePlayer
from ludic_gym.terminal import nearest
from ludic_gym.types import Episode, MakePolicy, Sampling, Task

EXAMPLES = """\
ludic bench ludic/TicTacToe-v0 --policy random --env-kwargs opponent=perfect
ludic bench games --policy oracle --out results
ludic bench ludic/GSM8K-v0 --data test.jsonl --policy http://localhost:8000/v1 --temperature 0
ludic bench ludic/Arithmetic-v0 --policy my_agents:make --samples 4 --fail-under 0.9
ludic bench math --model openai/ONE --model openai/TWO --out results
ludic bench ludic/TicTacToe-v0 --policy random --policy oracle --tournament
ludic bench --like results/one --model openai/NEW --out results/new"""
GAMES = 20


@dataclass(slots=True, kw_only=True)
class Outcome:
    """A run's scores by env, and the error that ended it; "" for none."""

    name: str
    args: BenchArgs
    tallies: dict[str, Tally] = field(default_factory=dict)
    failure: str = ""

    def results(self, label: str = "") -> dict[str, BenchResult]:
        """The results by env, whose id follows the label."""
        return {f"{label}{env_id}": tally.result() for env_id, tally in self.tallies.items()}


def main(argv: list[str]) -> int:
    """Run `ludic bench`; 1 if an episode failed, or a success rate is under `--fail-under`.

    Raises ConfigError for arguments that contradict each other, and KeyboardInterrupt after the
    results of the finished episodes.
    """
    read = partial(
        parse, BenchArgs, argv, command="bench", examples=EXAMPLES, common=COMMON, foreign=FOREIGN
    )
    args = read()
    if args.like is not None:
        args = read(default=settings_like(args.like, args.player))
    if bool(args.ids) == (args.like is not None):
        raise ConfigError(
            "name an environment or a suite (see `ludic list`), or a run that is played --like"
        )
    runs = runs_of(args)
    if args.tournament:
        return tournament(runs, args)
    if len(runs) > 1 and args.run.out is not None and (args.run.out / REQUEST).exists():
        # The runs are folders in it, and one run beside others would be read as theirs.
        raise ConfigError(f"{args.run.out} holds one run; name another folder for several")
    for one in runs.values():
        # All before the first: a mistake must not cost the tokens of the others.
        _ = one.player.params, one.player.extra_fields
    with readable_env_errors():
        plans = plans_of(args)
    outcomes: list[Outcome] = []
    try:
        for number, (name, one) in enumerate(runs.items(), 1):
            outcomes.append(Outcome(name=name, args=one))
            if len(runs) > 1:
                print(f"[{number}/{len(runs)}] {name}", file=sys.stderr, flush=True)
            play_one(outcomes[-1], plans, alone=len(runs) == 1)
    except KeyboardInterrupt:
        # Finished episodes are worth their time: print them before the exit code says 130.
        show(outcomes, plans, args)
        hint = "" if args.run.out is None else "; the same command continues from here"
        print(f"interrupted: these are the finished episodes{hint}", file=sys.stderr)
        raise
    show(outcomes, plans, args)
    return exit_code(outcomes, args)


def play_one(outcome: Outcome, plans: Mapping[str, EnvPlan], *, alone: bool) -> None:
    """Play a run; its scores and its failure are put into the outcome.

    alone: raise the error that ends it; otherwise the other runs are not to blame for a wrong key,
        a closed port, or a folder of another run.
    """
    try:
        asyncio.run(play_all(outcome, plans))
    except LudicError as error:
        if alone:
            raise
        outcome.failure = " ".join(str(error).split())
        print(f"{outcome.name}: {outcome.failure}", file=sys.stderr)


async def play_all(outcome: Outcome, plans: Mapping[str, EnvPlan]) -> None:
    """Play one env after the other into the folder of `--out`, if there is one.

    The tallies of the outcome are filled as episodes end, so that Ctrl-C leaves these to the
    caller.
    """
    args, player, tallies = outcome.args, outcome.args.player, outcome.tallies
    opened: AbstractAsyncContextManager[MakePolicy]
    if player.agent is not None:
        opened = open_agent(player.spec, player.agent)
    else:
        opened = model(
            player.spec,
            player.model_name,
            params=player.params,
            extra_body=player.extra_fields,
            limits=player.limits,
            chat_args=keyword_arguments(player.chat_arg),
            harness=player.harness,
        )
    async with opened as make_policy:
        # That of an agent program is none that has been found by its name.
        named = make_policy if isinstance(make_policy, Model) else None
        # The longest replies: a server may refuse the limit.
        longest = max((p.tasks[0].sampling for p in plans.values()), key=lambda s: s.max_tokens)
        # Without the seed, which is no choice of the user: a server may not take it.
        served = None if named is None else await named.probe(replace(longest, seed=None))
        client = None if named is None else named.client
        renamed = {} if client is None else client.renamed
        for line in [] if named is None else named.refusals:
            print(line, file=sys.stderr)
        play = Play(
            make_policy=make_policy,
            policy=args.policy,
            folder=args.run.out,
            concurrency=args.run.concurrency,
            timeout_s=args.run.timeout_s,
            price=args.run.costs,
            model=None if served is None else served.model,
        )
        # Claimed before the first episode: a second process must fail before it pays for tokens.
        wanted = {**request(args, plans), "served": play.model, "renamed": renamed}
        folder = nullcontext() if play.folder is None else open_folder(play.folder, wanted)
        with folder:
            for env_id, plan in plans.items():
                tally = tallies.setdefault(env_id, Tally())

                def note(tally: Tally = tally) -> str:
                    spent = "" if client is None else spent_text(client.usage, play.price)
                    return f"success {percent(tally.success_rate)} {spent}"

                await play_env(env_id, plan, play, tally=tally, note=note)
                # The other envs have the same server.
                if tally.stopped:
                    break
            # Inside the claim: no other process may change the folder before they are written.
            if play.folder is not None:
                write_results(play.folder, outcome.results())


def exit_code(outcomes: Sequence[Outcome], args: BenchArgs) -> int:
    """1 if a run or an episode failed, or a success rate is too low, which is printed."""
    several = len(outcomes) > 1
    results: dict[str, BenchResult] = {}
    for outcome in outcomes:
        results |= outcome.results(f"{outcome.name}, " if several else "")
    least = args.run.fail_under
    # Standard output is the JSON.
    console = Console(stderr=True) if args.run.json else screen()
    # `not >=` instead of `<`: the rate of an env without a finished episode is nan.
    low = {
        label: result.success_rate
        for label, result in results.items()
        if least is not None and not result.success_rate >= least
    }
    for label, rate in low.items():
        text = f"{label}: success rate {percent(rate)} is not at least {least:.1%}"
        console.print(text, style="red", markup=False)
    failed = any(outcome.failure for outcome in outcomes)
    return int(failed or bool(low) or any(result.errors for result in results.values()))


def show(outcomes: Sequence[Outcome], plans: Mapping[str, EnvPlan], args: BenchArgs) -> None:
    """Print the table of one policy, or a board per env of several, and the lines below it.

    outcomes: those of an interrupted run too.
    """
    if args.run.json:
        print_json(results_json(outcomes, plans))
        return
    several = len(runs_of(args)) > 1
    if several:
        for board in boards(board_runs(outcomes, plans), baseline=outcomes[0].name):
            headings, *rows = board_table(board)
            limits = limit_lines({board.setup.env_id: plans[board.setup.env_id]})
            print_table(headings, rows, title="\n".join([str(board), *limits]), numbers=True)
            for line in board_lines(board):
                screen().print(line, style="red", markup=False)
    else:
        headings, *rows = result_table(outcomes[0].results(), args.tasks.env_kwargs)
        title = "\n".join([f"policy: {args.policy}", *limit_lines(plans)])
        print_table(headings, rows, title=title, numbers=True)
    console = screen()
    for note in note_lines(r for outcome in outcomes for r in outcome.results().values()):
        console.print(note, markup=False)
    for outcome in outcomes:
        label = f"{outcome.name}, " if several else ""
        results = outcome.results(label)
        for line in figure_lines(results):
            console.print(line, markup=False)
        failure = [f"{outcome.name}: {outcome.failure}"] if outcome.failure else []
        harness = outcome.args.player.harness
        with_tools = {f"{label}{i}" for i, plan in plans.items() if has_tools(plan, harness)}
        for line in [*failure, *fault_lines(results, with_tools=with_tools)]:
            console.print(line, style="red", markup=False)
    out = args.run.out
    if out is not None:
        console.print(f"transcripts: {out}; to view them: ludic view {out}", markup=False)


def results_json(outcomes: Sequence[Outcome], plans: Mapping[str, EnvPlan]) -> dict[str, object]:
    """The results of one policy by env; of several, the boards, and each run with its failure.

    "limits": sampling parameters and samples of envs with their own, as published ones have.
    """
    limits = {env_id: plan.limits for env_id, plan in plans.items() if plan.limits}
    of_runs = {
        outcome.name: {
            "policy": outcome.args.policy,
            "failure": outcome.failure,
            "results": {env_id: result.numbers for env_id, result in outcome.results().items()},
        }
        for outcome in outcomes
    }
    if len(outcomes) == 1:
        (only,) = of_runs.values()
        return {**{name: only[name] for name in ("policy", "results")}, "limits": limits}
    board_list = boards(board_runs(outcomes, plans), baseline=outcomes[0].name)
    return {"boards": boards_json(board_list), "runs": of_runs, "limits": limits}


def board_runs(outcomes: Sequence[Outcome], plans: Mapping[str, EnvPlan]) -> list[Run]:
    """The outcomes as runs on the boards: in every env, also where one has no score."""
    return [
        Run(
            name=outcome.name,
            policy=outcome.args.policy,
            scores={
                Setup(
                    env_id=env_id,
                    kwargs=json.dumps(plan.kwargs, sort_keys=True),
                    data=plan.data,
                ): outcome.tallies[env_id].scores if env_id in outcome.tallies else ()
                for env_id, plan in plans.items()
            },
        )
        for outcome in outcomes
    ]


def tournament(runs: Mapping[str, BenchArgs], args: BenchArgs) -> int:
    """Let the policies play each other, and print their ratings; 1 if a game failed.

    Failed games are printed and do not count for the ratings; more than 2% of them, and there are
    no ratings. Raises ConfigError for fewer than
    two policies, an environment that is no game for two, or a file of games that exists.
    """
    if len(runs) < 2 or len(args.ids) != 1:
        raise ConfigError(
            f"--tournament is of one game and at least two policies, got {' '.join(args.ids)} "
            f"and {' '.join(runs)}: repeat --policy"
        )
    env_id = env_name(args.ids[0])
    if env_id not in pettingzoo.aec_registry:
        near = nearest(env_id, pettingzoo.aec_registry)
        hint = f"; did you mean {near!r}?" if near else ""
        raise ConfigError(f"{env_id} is no two-player game (see `ludic list`){hint}")
    path = None if args.run.out is None else transcript_path(args.run.out, env_id)
    # Seats and seeds repeat from run to run, so appended games would count twice.
    if path is not None and path.exists():
        raise ConfigError(f"{path} exists; name another folder")
    of_run = limits_of(args)
    task = Task(
        env_id=env_id,
        kwargs=keyword_arguments(args.tasks.env_kwargs),
        seed=args.tasks.seed,
        sampling=Sampling(**{name: of_run[name] for name in SAMPLING}),
        max_turns=args.tasks.max_turns,
    )
    episodes = asyncio.run(games_of(task, runs, args))
    games = [game_of(episode) for episode in episodes if episode.error is None]
    failed = [episode for episode in episodes if episode.error is not None]
    reason = no_rank(len(failed), len(episodes))
    ratings = bradley_terry(games) if games and not reason else ()
    if args.run.json:
        errors = {episode.index: episode.error for episode in failed}
        rated = [asdict(rating) for rating in ratings]
        print_json({"ratings": rated, "no_rank": reason, "errors": errors})
        return 1 if failed else 0
    if reason:
        screen().print(f"no ratings: {reason}", style="red", markup=False)
    if ratings:
        headings, *rows = ratings_table(ratings, games)
        print_table(headings, rows, title="ratings", numbers=True)
    for episode in failed:
        screen().print(f"game {episode.index}: {episode.error}", style="red", markup=False)
    return 1 if failed else 0


async def games_of(task: Task, runs: Mapping[str, BenchArgs], args: BenchArgs) -> list[Episode]:
    """The games in order of completion, failed ones with their error; each is written as it ends.

    Raises ConfigError for an unknown policy.
    """
    games = GAMES if args.tasks.episodes is None else args.tasks.episodes
    ended = []
    # A stack, because all policies, the file and the bar are open until the last game.
    async with AsyncExitStack() as stack:
        players: dict[str, MakePlayer] = {}
        for name, one in runs.items():
            opened = model(one.player.spec, one.player.model_name, limits=one.player.limits)
            # The reference policies accept both kinds of env; other policies ignore the env.
            players[name] = cast(MakePlayer, await stack.enter_async_context(opened))
        record = None
        if args.run.out is not None:
            args.run.out.mkdir(parents=True, exist_ok=True)
            path = transcript_path(args.run.out, task.env_id)
            record = stack.enter_context(open_records(path))
        # n (n - 1) / 2 pairs of players, each of which plays every game from both seats.
        total = games * len(players) * (len(players) - 1)
        show_game = stack.enter_context(progress_bar("games", total=total))
        async for episode in round_robin(
            players,
            task,
            games=games,
            concurrency=args.run.concurrency,
            timeout_s=args.run.timeout_s,
        ):
            if record is not None:
                record(episode)
            ended.append(episode)
            show_game(episode)
    return ended
