"""`ludic bench --repeat FILE:INDEX`: one recorded episode once more, beside its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludic_gym.bench.folder import bench_record
from ludic_gym.bench.policies import open_policy
from ludic_gym.bench.provenance import provenance
from ludic_gym.bench.result import score, served_models
from ludic_gym.commands.arguments import env_name, print_table, readable_env_errors, screen
from ludic_gym.errors import ConfigError, DataError
from ludic_gym.policies.chat import ServedPolicy
from ludic_gym.records import episode_from_json, read_lines
from ludic_gym.rollout.episodes import run_episodes
from ludic_gym.types import Episode

JSON = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """An episode and its record.

    record: the recorded line. before, now: the episodes. changes: the facts about environment,
    versions and parameters of the requests that differ, as (name, before, now).
    """

    record: Mapping[str, JSON]
    before: Episode
    now: Episode
    changes: tuple[tuple[str, str, str], ...]


def find_record(spec: str) -> Mapping[str, JSON]:
    """The record that "FILE:INDEX" names. Raises ConfigError if there is none."""
    name, _, index = spec.rpartition(":")
    if not name or not index.isdecimal():
        raise ConfigError(f"--repeat is FILE:INDEX, such as results/my-env.jsonl:7, got {spec!r}")
    if not Path(name).is_file():
        raise ConfigError(f"--repeat {spec}: there is no file {name!r}")
    for record in read_lines(name, dict):
        if record.get("index") == int(index):
            return record
    raise ConfigError(f"--repeat {spec}: no episode of {name} has the index {index}")


async def repeated(
    record: Mapping[str, JSON],
    *,
    policy: str | None = None,
    model: str | None = None,
    params: Mapping[str, Any] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    timeout_s: float | None = None,
) -> Repetition:
    """Play the record's task again, with the record's policy and model unless others are given.

    Raises DataError for a line that is no record, and ConfigError for a policy that cannot play.
    """
    try:
        before, name = episode_from_json(record), record["policy"]
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"no record of `ludic bench`: {error!r}") from error
    with readable_env_errors():
        env_name(before.task.env_id)
        origin = provenance(before.task.env_id, before.task.kwargs)
    # As it was requested, and not as the server named itself, which may be a dated version.
    requested = _parameters(before).get("model")
    opened = open_policy(policy or name, model or requested, params=params, extra_body=extra_body)
    async with opened as make_policy:
        if isinstance(make_policy, ServedPolicy):
            # As `ludic bench` does: it learns which parameters the server refuses.
            await make_policy.probe(before.task.sampling)
        stream = run_episodes([before.task], make_policy, concurrency=1, timeout_s=timeout_s)
        (now,) = [episode async for episode in stream]
    again = bench_record(now, policy=policy or name, origin=origin)
    return Repetition(
        record=record, before=before, now=now, changes=_changes((record, before), (again, now))
    )


def show_repetition(found: Repetition) -> int:
    """Print both results and the first difference; 1 if the episode failed now, else 0."""
    rows = [_row("recorded", found.before), _row("now", found.now)]
    headings = ("", "success", "reward", "outcome", "turns", "model")
    task = found.before.task
    print_table(headings, rows, title=f"{task.env_id}, seed {task.seed}")
    for name, before, now in found.changes:
        screen().print(f"{name}: {before}, now {now}", markup=False)
    screen().print(found.now.error or _first_difference(found.before, found.now), markup=False)
    return 0 if found.now.error is None else 1


def _parameters(episode: Episode) -> Mapping[str, JSON]:
    """The parameters of the first request; {} without one."""
    for rollout in episode.rollouts:
        for step in rollout.steps:
            for completion in step.decision.completions:
                if completion.call is not None:
                    return completion.call.parameters
    return {}


def _changes(*played: tuple[Mapping[str, JSON], Episode]) -> tuple[tuple[str, str, str], ...]:
    facts = [
        {
            "environment": record.get("environment", "not recorded"),
            "data": record["score"].get("data", ""),
            **record.get("versions", {}),
            **{f"parameter {name}": str(value) for name, value in _parameters(episode).items()},
        }
        for record, episode in played
        # A failed episode has no requests and no data, which is no change.
        if episode.error is None
    ]
    if len(facts) < 2:
        return ()
    names = facts[0].keys() | facts[1].keys()
    pairs = [(name, facts[0].get(name, "none"), facts[1].get(name, "none")) for name in names]
    return tuple(sorted(pair for pair in pairs if pair[1] != pair[2]))


def _row(name: str, episode: Episode) -> tuple[str, ...]:
    numbers = score(episode)
    success = "yes" if numbers.success else "no"
    models = ", ".join(served_models(episode)) or "-"
    return (name, success, f"{numbers.reward:.2f}", numbers.outcome, str(numbers.turns), models)


def _first_difference(before: Episode, now: Episode) -> str:
    if before.error is not None:
        return f"the recorded episode had failed: {before.error}"
    turns = [[step.decision.action for step in e.rollouts[0].steps] for e in (before, now)]
    for number, (old, new) in enumerate(zip(*turns, strict=False), 1):
        if old != new:
            return f"the actions differ from turn {number} on: {old!r}, now {new!r}"
    if len(turns[0]) != len(turns[1]):
        return (
            f"the actions are the same up to turn {min(map(len, turns))}, the last of one episode"
        )
    return "the actions are the same"
