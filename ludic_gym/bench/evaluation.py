"""evaluate: a policy on the tasks of an environment, in one call."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from contextlib import nullcontext
from typing import Any

from ludic_gym.bench.progress import progress_bar
from ludic_gym.bench.report import percent
from ludic_gym.bench.result import BenchResult
from ludic_gym.bench.runner import run_bench
from ludic_gym.bench.tally import Tally
from ludic_gym.bench.tasks import bench_tasks
from ludic_gym.errors import ConfigError
from ludic_gym.policies.base import PlainCall, run_blocking
from ludic_gym.policies.served import ServedPolicy
from ludic_gym.types import MakePolicy, Sampling


def evaluate(
    env_id: str,
    policy: MakePolicy,
    *,
    split: str | None = None,
    episodes: int | None = None,
    concurrency: int = 64,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    sampling: Sampling | None = None,
    attempts: int | None = None,
    progress: bool = True,
) -> BenchResult:
    """Play the tasks of an environment with a policy and return success rate, reward and more.

    The tasks are those of `bench_tasks`, so equal arguments play equal tasks. Works in a
    notebook too, inside a running event loop. Ctrl-C stops the episodes in flight.

    env_id: id of the environment, "module:id" if importing the module registers it.
    policy: makes a policy for an environment: `openai(...)`, `OraclePolicy`, or a function.
    split: split of the dataset, as the environment's argument.
    episodes: number of tasks; None: each row once, or 100 without rows.
    concurrency: episodes in flight.
    seed: task i has the env seed and the sampling seed `seed` + i.
    env_kwargs: further arguments of the environment.
    sampling: temperature, max_tokens and so on; None: `Sampling()`.
    attempts: replies without an action after which an episode fails; None: 1 in a single-turn
        environment, else no limit.
    progress: show a bar on stderr.
    Raises ConfigError for arguments that contradict each other or cannot be played. An episode that
    fails is in `BenchResult.errors`.

    >>> from ludic_gym import OraclePolicy
    >>> evaluate("ludic/Arithmetic-v0", OraclePolicy, episodes=20, progress=False).success_rate
    1.0
    """
    # A finished policy is the likeliest mistake. Called with an env it would fail in every episode,
    # with an error that does not name the remedy.
    if isinstance(policy, PlainCall):
        raise ConfigError(
            f"policy is a {type(policy).__name__}, which plays one episode; give a function that "
            "makes a policy for an env"
        )
    kwargs = {**({} if split is None else {"split": split}), **(env_kwargs or {})}
    if split not in (None, kwargs.get("split")):
        raise ConfigError(f"split={split!r}, but env_kwargs has split={kwargs['split']!r}")
    tasks = bench_tasks(
        env_id,
        kwargs=kwargs,
        episodes=episodes,
        seed=seed,
        sampling=sampling,
        attempts=attempts,
    )
    tally = Tally()

    def note() -> str:
        return f"success {percent(tally.success_rate)}"

    bar = progress_bar(env_id, total=len(tasks), note=note) if progress else nullcontext()
    with bar as show:
        playing = run_bench(tasks, policy, concurrency=concurrency, on_episode=show, tally=tally)
        return run_blocking(_closing(policy, playing))


async def _closing(policy: MakePolicy, playing: Coroutine[Any, Any, BenchResult]) -> BenchResult:
    """The result; afterwards, no connection to a server stays open."""
    try:
        return await playing
    finally:
        # The loop of `run_blocking` outlives the call, and its connections would too.
        if isinstance(policy, ServedPolicy):
            await policy.aclose()
