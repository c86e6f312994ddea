"""Evaluations of a run, and the report of its last one.

OUT/results.json    numbers of the last evaluation, by name
OUT/games.txt       some games as text
OUT/curve.png       metrics over the updates
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ludic_gym.bench.runner import run_bench
from ludic_gym.errors import EpisodeError
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.rollout.transcript import rollout_text
from ludic_gym.types import Episode, MakePolicy, Rollout, Task
from ludic_train.loggers.console import readable, sparkline
from ludic_train.loggers.loggers import imitated_until, read_metrics
from ludic_train.runs.config import RunConfig
from ludic_train.runs.folder import RESULTS
from ludic_train.runs.recipe import Recipe
from ludic_train.runs.tasks import evaluation_tasks

CONCURRENCY = 256


async def evaluate(
    recipe: Recipe,
    config: RunConfig,
    make_policy: MakePolicy,
    episodes: int,
    keep: Callable[[Episode], None] | None = None,
) -> dict[str, float]:
    """Success rate, mean reward and shares of outcomes of each set of evaluation tasks.

        await evaluate(recipe, config, make_policy, 200)    # {"perfect_first/success": 0.0, ...}

    episodes: of each set. keep: called with every episode as it ends.
    The keys are "set/success" with its 95% interval "set/success_low" and "set/success_high",
    "set/reward", "set/cut_off" (share of replies that reached their limit) and
    "set/OUTCOME" for each outcome of the recipe. Those of success are left out where the
    environment says nothing of it.
    Raises EpisodeError if an episode fails: a rate over the others would be of easier tasks.
    """
    shares: dict[str, float] = {}
    for name, tasks in evaluation_tasks(recipe, config, episodes).items():
        result = await run_bench(tasks, make_policy, concurrency=CONCURRENCY, on_episode=keep)
        if result.errors:
            index, reason = result.errors[0]
            raise EpisodeError(f"{len(result.errors)} of {name} failed; task {index}: {reason}")
        if not math.isnan(result.success_rate):
            low, high = result.success_interval
            shares |= {
                f"{name}/success": result.success_rate,
                f"{name}/success_low": low,
                f"{name}/success_high": high,
            }
        shares |= {
            f"{name}/reward": result.mean_reward,
            f"{name}/cut_off": result.cut_off / max(result.turns, 1),
        }
        for outcome in recipe.outcomes:
            shares[f"{name}/{outcome}"] = result.outcomes.get(outcome, 0) / result.episodes
    return shares


async def play(tasks: Iterable[Task], make_policy: MakePolicy) -> list[Rollout]:
    """Rollouts of the tasks, in their order: one each, or one per agent of a match.

    Raises EpisodeError if one fails, after all have ended.
    """
    episodes = [e async for e in run_episodes(tasks, make_policy, concurrency=CONCURRENCY)]
    for episode in episodes:
        if episode.error is not None:
            raise EpisodeError(f"{episode.task.env_id}, task {episode.index}: {episode.error}")
    episodes.sort(key=lambda episode: episode.index)
    return [rollout for episode in episodes for rollout in episode.rollouts]


PHASES = {
    "seconds/next_batch": "sampling and playing",
    "seconds/update": "updates",
    "seconds/publish": "publishing params",
    "seconds/evaluate": "evaluation",
}


def time_split(records: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of each phase over all updates; phases that were not measured have 0 s."""
    return {
        phase: sum(record.get(name, 0.0) for record in records) for name, phase in PHASES.items()
    }


def report(
    out: Path,
    *,
    results: Mapping[str, float],
    games: Sequence[Rollout],
    curves: Sequence[str],
    console: Console | None = None,
) -> None:
    """Write results.json, games.txt and curve.png to `out`, and print the gist of all three.

    out: folder of a run, with its metrics.jsonl.
    results: numbers of the last evaluation, by name. games: rollouts to write as transcripts.
    curves: metrics to draw; those without a number, as of a stage without updates, are left out.
    console: of the terminal if left out.
    """
    console = console or Console()
    (out / RESULTS).write_text(json.dumps(dict(results), indent=2) + "\n", encoding="utf-8")
    transcripts = [rollout_text(game) for game in games]
    (out / "games.txt").write_text("\n\n----\n\n".join(transcripts) + "\n", encoding="utf-8")
    records = read_metrics(out / "metrics.jsonl")
    # Without a number are metrics of a stage without updates.
    curves = [n for n in curves if any(math.isfinite(r.get(n, math.nan)) for r in records)]
    if curves:
        # At the end of a run: matplotlib would take half a second of each start.
        from ludic_train.loggers.plots import plot_curves

        plot_curves(records, out / "curve.png", curves, title=out.name)
    table = Table("result", "value", title="evaluation, sampled")
    for name, value in results.items():
        table.add_row(name, readable(value))
    history = Table("curve", "first", "", "last", title="over the run")
    for name in curves:
        points = [record[name] for record in records if name in record]
        history.add_row(name, readable(points[0]), sparkline(points, 40), readable(points[-1]))
    # What is in no phase, such as loading, is left out.
    times = Table("phase", "seconds", "share", title="where the time went")
    split = time_split(records)
    for phase, seconds in split.items():
        times.add_row(phase, f"{seconds:.1f}", f"{seconds / sum(split.values()):.0%}")
    console.print(table, history, times)
    if transcripts:
        console.rule("a sampled game")
        # The text of a model, which must not be taken for markup.
        console.print(transcripts[0], highlight=False, markup=False)
        console.rule()
    if imitated := imitated_until(records):
        console.print(f"it imitated until update {imitated}, and learned from rewards after that")
    if curves:
        console.print(f"curves   {out / 'curve.png'}")
    console.print(f"games    {out / 'games.txt'}")
