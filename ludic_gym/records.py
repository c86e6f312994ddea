"""Episodes as lines of JSON, which are read back without loss, token traces and infos included.

Every line has its schema and version, so that files can be appended to and joined. Types that JSON
lacks are marked: {"$tuple": [...]}, {"$dict": [[key, value], ...]} for keys that are no strings,
{"$array": [dtype, shape, values]}, {"$scalar": [dtype, value]}. Floats have all their digits; NaN
and infinities are written as in Python's json.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ludic_gym.errors import DataError
from ludic_gym.types import Completion, Decision, Episode, Rollout, Sampling, Step, Task, ToolCall

SCHEMA = "ludic.episode"
VERSION = 1
JSON = Any
T = TypeVar("T")
TRACES = ("prompt_ids", "completion_ids", "logprobs", "versions")
_ARRAY_KINDS = "biufU"


@contextmanager
def open_records(
    path: Path | str, to_json: Callable[[Episode], JSON] | None = None
) -> Iterator[Callable[[Episode], None]]:
    """A function that appends an episode to the file, as one line and at once.

    to_json: the record of an episode; `episode_to_json` by default.
    It raises DataError for an episode with a value that could not be read back.
    """
    to_json = to_json or episode_to_json
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="ascii") as file:

        def append(episode: Episode) -> None:
            file.write(json.dumps(to_json(episode)) + "\n")
            file.flush()

        yield append


async def recorded(episodes: AsyncIterator[Episode], path: Path | str) -> AsyncIterator[Episode]:
    """The same episodes, each appended to the file first, failed ones included."""
    with open_records(path) as append:
        async for episode in episodes:
            append(episode)
            yield episode


def write_rollouts(rollouts: Iterable[Rollout], path: Path | str) -> None:
    """Append rollouts without an episode, each as an episode of its own."""
    with open_records(path) as append:
        for index, rollout in enumerate(rollouts):
            append(Episode(index=index, task=rollout.task, rollouts=(rollout,)))


def read_episodes(path: Path | str) -> Iterator[Episode]:
    """The episodes of a file, one line at a time.

    Raises DataError, with the number of the line, for one that is no record or has an unknown
    version.
    """
    return read_lines(path, episode_from_json)


def read_lines(path: Path | str, convert: Callable[[JSON], T]) -> Iterator[T]:
    """The converted JSON of each line. Raises DataError for a line that cannot be converted."""
    with Path(path).open(encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            try:
                yield convert(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError, DataError) as error:
                raise DataError(
                    f"{path}, line {number}, is no such record: {type(error).__name__}: {error}"
                ) from error


def read_rollouts(path: Path | str) -> Iterator[Rollout]:
    """The rollouts of all episodes of a file."""
    for episode in read_episodes(path):
        yield from episode.rollouts


def episode_to_json(episode: Episode) -> dict[str, JSON]:
    """The episode as a JSON object. Raises DataError for a value that could not be read back."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "index": episode.index,
        "task": _task_to_json(episode.task),
        "error": episode.error,
        "rollouts": [_rollout_to_json(rollout, episode.task) for rollout in episode.rollouts],
    }


def episode_from_json(record: Mapping[str, JSON]) -> Episode:
    """The episode of a record of `episode_to_json`. Raises DataError for another schema."""
    if (record["schema"], record["version"]) != (SCHEMA, VERSION):
        raise DataError(
            f"a record of {record['schema']!r} version {record['version']!r}; "
            f"this code reads {SCHEMA!r} version {VERSION}"
        )
    task = _task_from_json(record["task"])
    rollouts = tuple(_rollout_from_json(rollout, task) for rollout in record["rollouts"])
    return Episode(index=record["index"], task=task, rollouts=rollouts, error=record["error"])


def completion_to_json(completion: Completion) -> dict[str, JSON]:
    """The completion as a JSON object."""
    calls = [_shallow(call) for call in completion.tool_calls]
    return {**_shallow(completion), "sampling": _shallow(completion.sampling), "tool_calls": calls}


def completion_from_json(record: Mapping[str, JSON]) -> Completion:
    """The completion of a record of `completion_to_json`."""
    traces = {name: _tuple(record.get(name)) for name in TRACES}
    calls = tuple(ToolCall(**call) for call in record["tool_calls"])
    sampling = _sampling_from_json(record["sampling"])
    return Completion(**{**record, **traces, "sampling": sampling, "tool_calls": calls})


def _rollout_to_json(rollout: Rollout, task: Task) -> dict[str, JSON]:
    if rollout.task != task:
        raise DataError(f"the rollout of {rollout.agent!r} has another task than its episode")
    steps = [_step_to_json(step) for step in rollout.steps]
    return {
        "agent": rollout.agent,
        "player": rollout.player,
        "steps": steps,
        "final_observation": rollout.final_observation,
    }


def _rollout_from_json(record: Mapping[str, JSON], task: Task) -> Rollout:
    steps = tuple(_step_from_json(step) for step in record["steps"])
    return Rollout(**{**record, "task": task, "steps": steps})


def _step_to_json(step: Step) -> dict[str, JSON]:
    completions = [completion_to_json(c) for c in step.decision.completions]
    decision = {**_shallow(step.decision), "completions": completions}
    return {**_shallow(step), "decision": decision, "info": _marked(step.info)}


def _step_from_json(record: Mapping[str, JSON]) -> Step:
    completions = tuple(completion_from_json(c) for c in record["decision"]["completions"])
    decision = Decision(**{**record["decision"], "completions": completions})
    return Step(**{**record, "decision": decision, "info": _unmarked(record["info"])})


def _task_to_json(task: Task) -> dict[str, JSON]:
    odd = {"kwargs": _marked(task.kwargs), "options": _marked(task.options)}
    return {**_shallow(task), **odd, "sampling": _shallow(task.sampling)}


def _task_from_json(record: Mapping[str, JSON]) -> Task:
    odd = {"kwargs": _unmarked(record["kwargs"]), "options": _unmarked(record["options"])}
    return Task(**{**record, **odd, "sampling": _sampling_from_json(record["sampling"])})


def _sampling_from_json(record: Mapping[str, JSON]) -> Sampling:
    return replace(Sampling(**record), stop=tuple(record["stop"]))


def _shallow(data: Sampling | Completion | Decision | Step | Task | ToolCall) -> dict[str, JSON]:
    return {field.name: getattr(data, field.name) for field in fields(data)}


def _tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)


def _marked(value: object) -> JSON:
    """The value in JSON's types, with marks for other types."""
    # First, because np.float64 is a float too, and would lose its dtype.
    if isinstance(value, np.generic | np.ndarray):
        return _marked_array(value)
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_marked(item) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_marked(item) for item in value]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _marked(item) for key, item in value.items()}
        return {"$dict": [[_marked(key), _marked(item)] for key, item in value.items()]}
    raise DataError(
        f"cannot record {value!r} of {type(value).__name__} so that it can be read back"
    )


def _marked_array(value: np.generic | np.ndarray) -> JSON:
    if value.dtype.kind not in _ARRAY_KINDS:
        raise DataError(
            f"cannot record {value!r} of dtype {value.dtype} so that it can be read back"
        )
    if isinstance(value, np.ndarray):
        return {"$array": [value.dtype.str, list(value.shape), value.ravel().tolist()]}
    return {"$scalar": [value.dtype.str, value.item()]}


def _unmarked(value: JSON) -> Any:  # noqa: ANN401 - whatever was recorded
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tuple" in value:
        return tuple(_unmarked(item) for item in value["$tuple"])
    if "$dict" in value:
        return {_unmarked(key): _unmarked(item) for key, item in value["$dict"]}
    if "$array" in value:
        dtype, shape, values = value["$array"]
        return np.array(values, dtype=dtype).reshape(shape)
    if "$scalar" in value:
        dtype, item = value["$scalar"]
        return np.array(item, dtype=dtype)[()]
    return {key: _unmarked(item) for key, item in value.items()}
