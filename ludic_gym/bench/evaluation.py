"""Evaluation of a policy on environments: in one call, or into the folder of a benchmark."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from envs_registry.catalog import SUITES, bench_kwargs
from envs_registry.published import PUBLISHED, PublishedLimits
from ludic_gym.bench.folder import (
    TIMES,
    keep_finished,
    open_transcripts,
    put_in_order,
    read_scores,
    transcript_path,
)
from ludic_gym.bench.report import percent, progress_bar, spent_text
from ludic_gym.bench.result import BenchResult, Price, Tally, served_models
from ludic_gym.bench.runner import bench_tasks, run_bench
from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_gym.making import env_id_of, make_env
from ludic_gym.models import Model, model
from ludic_gym.offered import env_tools
from ludic_gym.policies.base import PlainCall, PolicyWrapper, run_blocking
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.rollout.pool import close
from ludic_gym.types import Env, Episode, MakePolicy, Policy, Sampling, Task


def evaluate(
    env: str | Callable[[], Env],
    policy: MakePolicy | Policy | str,
    *,
    harness: Harness | str | None = None,
    split: str | None = None,
    episodes: int | None = None,
    concurrency: int = 64,
    timeout_s: float | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    sampling: Sampling | None = None,
    attempts: int | None = None,
    progress: bool = True,
) -> BenchResult:
    """Play the tasks of an environment with a policy and return success rate, reward and more.

    The tasks are those of `bench_tasks`, so equal arguments play equal tasks. Works in a
    notebook too, inside a running event loop. Ctrl-C stops the episodes in flight.

    env: id of the environment, "module:id" if importing the module registers it; or a function that
        makes one, such as `lambda: lg.as_text(gym.make("FrozenLake-v1"))`.
    policy: makes a policy for an environment: `OraclePolicy`, or a function; or the policy of a
        model, such as `ChatPolicy(client)`, which is copied for each episode; or what `model`
        returns; or its name there: "openai/gpt-5", an address, a run's folder, "oracle".
    harness: how the model of that text plays, as of `Harness.of`.
    split: split of the dataset, as the environment's argument.
    episodes: number of tasks; None: each row once, or 100 without rows.
    concurrency: episodes in flight. timeout_s: seconds after which an episode fails.
    seed: task i has the env seed and the sampling seed `seed` + i.
    env_kwargs: further arguments of the environment.
    sampling: temperature, max_tokens and so on; None: `Sampling()`.
    attempts: replies without an action, one after the other, after which an episode fails; None:
        that of the harness, else 1 in a single-turn environment and 3 in others.
    progress: show a bar on stderr, and what a server refuses.
    The result holds the episodes: a notebook shows some, `result.first_failure` is the first with a
    reply that went wrong, and `pandas.DataFrame(result.rows())` has a row for each.
    Raises ConfigError for arguments that contradict each other or cannot be played. An episode that
    fails is in `BenchResult.errors`.

    >>> from ludic_gym import OraclePolicy
    >>> evaluate("ludic/Arithmetic-v0", OraclePolicy, episodes=20, progress=False).success_rate
    1.0
    """
    if harness is not None and not isinstance(policy, str):
        raise ConfigError(
            "harness is for a policy that is named by a text; give it to the function that made "
            "this one, such as lg.model(url, harness=...)"
        )
    plays = Harness.of(harness)
    plan = model(policy, harness=plays) if isinstance(policy, str) else _each_episode(policy)
    usage = plan.usage if isinstance(plan, Model) else None
    kwargs = {**({} if split is None else {"split": split}), **(env_kwargs or {})}
    if split not in (None, kwargs.get("split")):
        raise ConfigError(f"split={split!r}, but env_kwargs has split={kwargs['split']!r}")
    env_id = env_id_of(env)
    tasks = bench_tasks(
        env_id,
        kwargs=kwargs,
        episodes=episodes,
        seed=seed,
        sampling=sampling,
        attempts=plays.attempts if attempts is None else attempts,
    )
    tally = Tally()

    def note() -> str:
        spent = "" if usage is None else spent_text(usage, None)
        return f"success {percent(tally.success_rate)} {spent}"

    bar = progress_bar(env_id, total=len(tasks), note=note) if progress else nullcontext()

    async def played(show: Callable[[object], None] | None) -> BenchResult:
        async with _opened(plan, sampling or Sampling(), progress) as make_policy:
            return await run_bench(
                tasks,
                make_policy,
                concurrency=concurrency,
                timeout_s=timeout_s,
                on_episode=show,
                tally=tally,
            )

    with bar as show:
        return run_blocking(played(show))


def _each_episode(policy: Any) -> MakePolicy:  # noqa: ANN401 - told apart here
    """The function itself, or a function that copies the policy of a model.

    Raises ConfigError for other policies, which may hold an env or a place in a script.
    """
    if not isinstance(policy, PlainCall):
        return cast(MakePolicy, policy)
    innermost: object = policy
    while isinstance(innermost, PolicyWrapper):
        innermost = innermost.policy
    if not isinstance(innermost, ChatPolicy):
        raise ConfigError(
            f"policy is a {type(policy).__name__}, which plays one episode; give a function that "
            "makes a policy for an env"
        )
    return lambda env: cast(Policy, deepcopy(policy))


@asynccontextmanager
async def _opened(
    policy: MakePolicy, sampling: Sampling, progress: bool
) -> AsyncIterator[MakePolicy]:
    """The policy while its connections are open, after the probe of a server."""
    if not isinstance(policy, Model):
        yield policy
        return
    # The loop of `run_blocking` outlives the call, and its connections would too.
    async with policy:
        await policy.probe(sampling)
        for line in policy.refusals if progress else ():
            print(line, file=sys.stderr)
        yield policy


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvPlan:
    """The tasks of one env and its arguments.

    data: name and hash of its rows, "" without rows. has_tools: true if it offers tools.
    limits: sampling parameters and "samples" of its own, where they are not those of the run, and
        their "source" if all of them are published; empty for none.
    """

    tasks: tuple[Task, ...]
    kwargs: Mapping[str, Any]
    data: str
    has_tools: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)


def env_plan(
    env_id: str, kwargs: Mapping[str, Any], tasks: tuple[Task, ...], limits: Mapping[str, Any]
) -> EnvPlan:
    """The plan of the tasks in an environment with these arguments. limits: as of `EnvPlan`."""
    # Imported here: `ludic bench --help` makes no env.
    from ludic_gym.envs.core.question import QuestionEnv

    env = make_env(env_id, **kwargs)
    try:
        inner = env.unwrapped
        origin = inner.origin if isinstance(inner, QuestionEnv) else None
        data = "" if origin is None else str(origin)
        return EnvPlan(
            tasks=tasks, kwargs=kwargs, data=data, has_tools=bool(env_tools(env)), limits=limits
        )
    finally:
        close(env)


def has_tools(plan: EnvPlan, harness: Harness | str | None) -> bool:
    """True if the environment or the harness offers tools."""
    return plan.has_tools or Harness.of(harness).tools is not None


def named_envs(names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The named ids and those of the named suites and benchmarks, each once, with kwargs.

    names: ids, suites and published benchmarks in any order; ids are not checked here.
    Suites and benchmarks name a real split; an id that is named directly has no kwargs.
    """
    named: dict[str, Mapping[str, Any]] = {}
    for name in names:
        if name in PUBLISHED:
            entry = PUBLISHED[name]
            # The arguments of an id of its own are registered with it.
            named[entry.id] = {} if entry.gym else entry.kwargs
        else:
            named.update(bench_kwargs(name) if name in SUITES else {name: {}})
    return named


def published_limits(names: Sequence[str]) -> Mapping[str, PublishedLimits]:
    """Limits of the published benchmarks among the names, by id.

    An environment of the catalogue has them only by the benchmark's name.
    """
    return {
        entry.id: entry.limits
        for entry in PUBLISHED.values()
        if entry.limits and (entry.name in names or (entry.gym and entry.id in names))
    }


def limit_lines(plans: Mapping[str, EnvPlan]) -> list[str]:
    """A line for each env with limits of its own."""
    lines = []
    for env_id, plan in plans.items():
        limits = {name: value for name, value in plan.limits.items() if value is not None}
        source = limits.pop("source", "")
        if limits:
            values = ", ".join(f"{name} {value}" for name, value in limits.items())
            lines.append(f"{env_id}: {values}" + (f" ({source})" if source else ""))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """Settings of a benchmark's episodes.

    folder: where they are kept, or None. policy: its name in the records.
    concurrency, timeout_s, price: as in `run_bench`.
    model: the served model; an episode of another one ends the run.
    """

    make_policy: MakePolicy
    policy: str
    folder: Path | None = None
    concurrency: int = 64
    timeout_s: float | None = None
    price: Price | None = None
    model: str | None = None


async def play_env(
    env_id: str, plan: EnvPlan, play: Play, *, tally: Tally, note: Callable[[], str]
) -> None:
    """Play the tasks that the env's file lacks, failed ones first, then sort the file by task.

    tally: receives all scores, those in the file first. note: the text behind the bar.
    """
    path = None if play.folder is None else transcript_path(play.folder, env_id)
    done, failed = set(), list[int]()
    if path is not None:
        # Those that the model did not end say nothing about it: they are removed, and played again.
        failed = keep_finished(path, plan.tasks)
        # Before the bar begins, which includes them and their success rate.
        for score in read_scores(path):
            tally.add(score)
            done.add(score.index)
    with ExitStack() as stack:
        record = times = None
        if play.folder is not None and path is not None:
            record = stack.enter_context(
                open_transcripts(path, policy=play.policy, price=play.price)
            )
            times = stack.enter_context((play.folder / TIMES).open("a", encoding="ascii"))
        bar = progress_bar(env_id, total=len(plan.tasks), done=len(done), note=note)
        show = stack.enter_context(bar)

        def on_episode(episode: Episode) -> None:
            for served in served_models(episode):
                if play.model not in (None, served):
                    raise ConfigError(
                        f"{env_id}, episode {episode.index}: the server's model is {served!r} now, "
                        f"and was {play.model!r}; the episodes before this one are kept. Name one "
                        "model with --model"
                    )
            if record is not None:
                record(episode)
            show(episode)

        def on_time(episode: Episode, seconds: float) -> None:
            # Beside the transcripts, because durations differ where equal runs are equal. By seeds,
            # because an episode's index changes with the number of samples.
            task = episode.task
            seeds = {"seed": task.seed, "sampling_seed": task.sampling.seed}
            if times is not None:
                times.write(
                    json.dumps({"env": env_id, **seeds, "seconds": round(seconds, 4)}) + "\n"
                )

        await run_bench(
            plan.tasks,
            play.make_policy,
            concurrency=play.concurrency,
            timeout_s=play.timeout_s,
            on_episode=on_episode,
            on_time=on_time,
            skip=done,
            first=failed,
            tally=tally,
            price=play.price,
            keep=False,
        )
    if path is not None:
        # Episodes end in any order, and equal runs must leave equal files.
        put_in_order(path)
