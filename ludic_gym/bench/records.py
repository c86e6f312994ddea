"""Episodes as lines of JSON, with all it takes to play them again.

The first line is the header, every other one an episode. Readers check `schema` and `version`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ludic_gym.bench.result import score, succeeded
from ludic_gym.errors import ConfigError
from ludic_gym.types import Completion, Episode, Rollout, Step

SCHEMA = "ludic.bench"
SCHEMA_VERSION = 1


@contextmanager
def open_records(path: Path, *, policy: str) -> Iterator[Callable[[Episode], None]]:
    """A function that appends an episode to the file, at once, as one line.

    policy: how the policy is written on the command line.
    Raises ConfigError if the file exists: a run is never overwritten.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise ConfigError(f"{path} holds an earlier run; name another folder") from None
    with file:

        def write(record: Mapping[str, Any]) -> None:
            file.write(json.dumps(record, default=plain) + "\n")
            file.flush()

        write(header())
        yield lambda episode: write(episode_record(episode, policy=policy))


@cache
def ludic_version() -> str:
    """The installed version, read from its metadata once."""
    return version("ludic-gym")


def header() -> dict[str, Any]:
    """The first line: which schema the others follow."""
    return {"schema": SCHEMA, "version": SCHEMA_VERSION, "ludic": ludic_version()}


def episode_record(episode: Episode, *, policy: str) -> dict[str, Any]:
    """One episode: how to play it again, what it came to, what was said."""
    task, numbers = episode.task, score(episode)
    return {
        "index": episode.index,
        "env_id": task.env_id,
        "kwargs": dict(task.kwargs),
        "seed": task.seed,
        "options": task.options,
        "max_turns": task.max_turns,
        "sampling": asdict(task.sampling),
        "policy": policy,
        "ludic": ludic_version(),
        "error": numbers.error,
        "success": numbers.success,
        "outcome": numbers.outcome,
        "reward": numbers.reward,
        "turns": numbers.turns,
        "rollouts": [rollout_record(rollout) for rollout in episode.rollouts],
    }


def rollout_record(rollout: Rollout) -> dict[str, Any]:
    """One agent's transcript."""
    return {
        "agent": rollout.agent,
        "success": succeeded(rollout),
        "reward": rollout.total_reward,
        "steps": [step_record(step) for step in rollout.steps],
        "final_observation": rollout.final_observation,
    }


def step_record(step: Step) -> dict[str, Any]:
    """One turn."""
    return {
        "observation": step.observation,
        "action": step.decision.action,
        "feedback": step.decision.feedback,
        "completions": [completion_record(c) for c in step.decision.completions],
        "reward": step.reward,
        "terminated": step.terminated,
        "truncated": step.truncated,
        "info": dict(step.info),
    }


def completion_record(completion: Completion) -> dict[str, Any]:
    """One model call; token counts are null where the endpoint does not tell them."""
    prompt, sampled = completion.prompt_ids, completion.completion_ids
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": None if prompt is None else len(prompt),
        "completion_tokens": None if sampled is None else len(sampled),
        "policy_version": completion.policy_version,
        "seed": completion.sampling.seed,
    }


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value json does not know: numpy's as numbers and lists, any other by its repr."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return repr(value)
