"""`ludic bench`: a policy plays, a table says how it did."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ludic_gym.bench import bench_tasks, open_policy, open_transcripts, run_bench
from ludic_gym.bench.records import refuse_earlier_run
from ludic_gym.bench.report import bench_progress, cut_off_lines, error_lines, result_table
from ludic_gym.bench.result import Score, score, summarise
from ludic_gym.commands.arguments import (
    env_name,
    keyword_arguments,
    option,
    parse,
    readable_env_errors,
    screen,
)
from ludic_gym.errors import ConfigError
from ludic_gym.types import Episode, Sampling, Task

EXAMPLES = """\
ludic bench ludic/TicTacToe-v0 --policy random --env-kwargs opponent=perfect
ludic bench ludic/GSM8K-v0 --data test.jsonl --policy oracle
ludic bench ludic/Arithmetic-v0 --policy http://localhost:8000/v1 --temperature 0
ludic bench ludic/TicTacToe-v0 --policy runs/tic-tac-toe --episodes 1000 --out results"""


@dataclass(frozen=True, kw_only=True)
class BenchArgs:
    """Play environments with a policy and say how it did."""

    ids: Annotated[tyro.conf.Positional[tuple[str, ...]], option("ID ...")]
    """Environment ids, as `ludic list` shows them."""
    policy: str = "random"
    """oracle, random, the http(s) address of an OpenAI-style server, or a run folder."""
    model: Annotated[str | None, option("NAME")] = None
    """The server's name for its model; by default the one it serves."""
    episodes: Annotated[int | None, option("N")] = None
    """Episodes per env; by default every row once, or 100 where there are no rows."""
    data: Annotated[str | None, option("PATH")] = None
    """Where a dataset env takes its rows from: a jsonl file, say."""
    env_kwargs: Annotated[tuple[str, ...], option("KEY=VALUE ...")] = ()
    """Arguments of the env."""
    seed: int = 0
    """Episode i plays and samples with this seed + i."""
    concurrency: int = 64
    """Episodes in flight."""
    timeout_s: Annotated[float | None, option("SECONDS")] = None
    """Seconds after which an episode counts as failed; by default never."""
    max_turns: int = 32
    """Turns after which an episode is cut short."""
    temperature: float = 1.0
    """Sampling temperature of a model; 0 is greedy."""
    top_p: float = 1.0
    """Nucleus of the sampling."""
    max_tokens: int = 256
    """Most tokens of one reply."""
    out: Annotated[Path | None, option("DIR")] = None
    """Folder for the transcripts: one jsonl file per env, one line per episode."""


def main(argv: list[str]) -> int:
    """Runs `ludic bench`; 1 if an episode failed, which is no matter of the policy."""
    args = parse(BenchArgs, argv, command="bench", examples=EXAMPLES)
    if not args.ids:
        raise ConfigError("name at least one environment; `ludic list` shows them")
    scores: dict[str, list[Score]] = {}
    try:
        asyncio.run(run_all(args, scores))
    except KeyboardInterrupt:
        show_results(scores, args)
        print("interrupted: these are the episodes that had ended", file=sys.stderr)
        raise
    failed = show_results(scores, args)
    return 1 if failed else 0


async def run_all(args: BenchArgs, scores: dict[str, list[Score]]) -> None:
    """Play one env after the other; each fills its list in `scores` as its episodes end."""
    with readable_env_errors():
        tasks = {env_id: env_tasks(env_id, args) for env_id in args.ids}
    refuse_earlier_runs(args)
    async with open_policy(args.policy, model=args.model) as make_policy:
        for env_id in tasks:
            ended = scores.setdefault(env_id, [])
            with (
                records(env_id, args) as record,
                bench_progress(env_id, total=len(tasks[env_id])) as show,
            ):
                await run_bench(
                    tasks[env_id],
                    make_policy,
                    concurrency=args.concurrency,
                    timeout_s=args.timeout_s,
                    on_episode=each_of(record, show, scored_into(ended)),
                )


def show_results(scores: Mapping[str, Sequence[Score]], args: BenchArgs) -> bool:
    """Print the table and what has to be said about it; whether episodes failed."""
    results = {env_id: summarise(ended) for env_id, ended in scores.items()}
    console = screen()
    console.print(result_table(results, policy=args.policy))
    for line in [*error_lines(results), *cut_off_lines(results)]:
        console.print(line, style="red", markup=False)
    if args.out is not None:
        console.print(f"transcripts: {args.out}", markup=False)
    return any(result.errors for result in results.values())


def env_tasks(env_id: str, args: BenchArgs) -> tuple[Task, ...]:
    """What one env plays."""
    kwargs: dict[str, Any] = dict(keyword_arguments(args.env_kwargs))
    if args.data is not None:
        kwargs["data"] = args.data
    # Tasks keep the module's name, so that their records can be played again anywhere.
    env_name(env_id)
    return bench_tasks(
        env_id,
        kwargs=kwargs,
        episodes=args.episodes,
        seed=args.seed,
        sampling=Sampling(
            temperature=args.temperature, top_p=args.top_p, max_tokens=args.max_tokens
        ),
        max_turns=args.max_turns,
    )


OnEpisode = Callable[[Episode], None]


def records(env_id: str, args: BenchArgs) -> AbstractContextManager[OnEpisode]:
    """What keeps the transcripts of one env; nothing does without `--out`."""
    if args.out is None:
        return nullcontext(lambda episode: None)
    return open_transcripts(transcript_path(args.out, env_id), policy=args.policy)


def transcript_path(out: Path, env_id: str) -> Path:
    """The file of an env's transcripts."""
    return out / f"{env_id.replace('/', '-').replace(':', '-')}.jsonl"


def refuse_earlier_runs(args: BenchArgs) -> None:
    """Raises ConfigError if any env's file exists, before the first one is played."""
    if args.out is not None:
        for env_id in args.ids:
            refuse_earlier_run(transcript_path(args.out, env_id))


def scored_into(scores: list[Score]) -> OnEpisode:
    """What adds every episode's score to the list."""
    return lambda episode: scores.append(score(episode))


def each_of(*functions: OnEpisode) -> OnEpisode:
    """One function that calls several."""

    def call(episode: Episode) -> None:
        for function in functions:
            function(episode)

    return call
