"""Plans: the tasks of each environment of a benchmark, or recorded decisions to score again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from envs_registry.catalog import SUITES, bench_kwargs
from ludic_gym.bench.folder import read_request, transcript_path
from ludic_gym.bench.records import read_scores
from ludic_gym.bench.runner import Job
from ludic_gym.policies.reference import ReplayPolicy
from ludic_gym.records import read_episodes
from ludic_gym.types import Env, Policy, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvPlan:
    """The jobs of one env.

    jobs: to be iterated over once. count: their number.
    kwargs: arguments of the env.
    """

    jobs: Iterable[Job]
    count: int
    kwargs: Mapping[str, Any]


def named_envs(names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The named ids and the ids of the named suites, each once, with their kwargs.

    A suite names a real split for its data sets; an id that is named directly has no kwargs.
    """
    named: dict[str, Mapping[str, Any]] = {}
    for name in names:
        named.update(bench_kwargs(name) if name in SUITES else {name: {}})
    return named


def rescoring_plans(folder: Path, kwargs: Mapping[str, Any]) -> dict[str, EnvPlan]:
    """Plans that repeat the decisions of a benchmark's folder in its envs with these kwargs too.

    Failed episodes are left out. An episode fails if its observations differ from the record.
    """
    plans = {}
    for env_id, env in read_request(folder)["envs"].items():
        path = transcript_path(folder, env_id)
        plans[env_id] = EnvPlan(
            jobs=_recorded_jobs(path, kwargs),
            count=sum(score.error is None for score in read_scores(path)),
            kwargs={**env["kwargs"], **kwargs},
        )
    return plans


def _recorded_jobs(path: Path, kwargs: Mapping[str, Any]) -> Iterator[Job]:
    for episode in read_episodes(path):
        for rollout in episode.rollouts:
            task = replace(episode.task, kwargs={**episode.task.kwargs, **kwargs})
            yield task, partial(_replayed, rollout)


def _replayed(rollout: Rollout, env: Env) -> Policy:
    return ReplayPolicy(rollout)
