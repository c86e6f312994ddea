"""The folder of a benchmark: its request, every episode, and the results.

bench.json holds the request, before anything is played; an equal request continues where the folder
ends, and one for more tasks or samples adds to it. ENV.jsonl has a line per episode, results.json
the results, times.jsonl the durations. Except for times.jsonl, equal requests with a deterministic
policy write equal files.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ludic_gym.bench.result import BenchResult, Price, Score, score
from ludic_gym.errors import ConfigError, DataError
from ludic_gym.records import episode_from_json, open_records, read_lines, record_line, to_json
from ludic_gym.types import Episode, Task

REQUEST, RESULTS, TIMES = "bench.json", "results.json", "times.jsonl"
SCHEMA, VERSION = "ludic.bench", 1
JSON = Any


@contextmanager
def open_folder(folder: Path, request: Mapping[str, JSON]) -> Iterator[bool]:
    """Claim the folder for this request while the context lasts; yield True for a known request.

    A request for more tasks or more samples of them replaces the folder's.
    Raises ConfigError if the folder holds another request, naming the differences, or if another
    process plays into it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _claimed(folder):
        is_continued = (folder / REQUEST).exists()
        # Through JSON, because the stored request has lists where the new one has tuples.
        request = json.loads(json.dumps(request))
        before = read_request(folder) if is_continued else None
        if before is not None:
            old, new = _flat(_grown(before, request)), _flat(request)
            differ = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
            if differ:
                pairs = (f"{key}: {old.get(key)!r}, now {new.get(key)!r}" for key in differ)
                raise ConfigError(
                    f"{folder} holds another run ({'; '.join(pairs)}); name another folder"
                )
        if before != request:
            write_json(folder / REQUEST, {"schema": SCHEMA, "version": VERSION, **request})
        yield is_continued


def read_request(folder: Path) -> dict[str, JSON]:
    """The request of the folder. Raises ConfigError if it is no folder of `ludic bench`."""
    path = folder / REQUEST
    if not path.exists():
        raise ConfigError(f"{folder} holds no {REQUEST}; name a folder of `ludic bench --out`")
    try:
        request: dict[str, JSON] = json.loads(path.read_text())
        schema = (request.pop("schema"), request.pop("version"))
    except (ValueError, KeyError, AttributeError) as error:
        raise DataError(f"{path} is no request of `ludic bench`: {error!r}") from error
    if schema != (SCHEMA, VERSION):
        raise DataError(f"{path} has the schema {schema}; this code reads {(SCHEMA, VERSION)}")
    return request


def transcript_path(folder: Path, env_id: str) -> Path:
    """The file of an env's episodes, which need not exist.

    >>> transcript_path(Path("results"), "my_envs:mine/Riddle-v0").name
    'my_envs-mine-Riddle-v0.jsonl'
    """
    # Ids have "/" and ":", which file names of some systems cannot have.
    return folder / f"{env_id.replace('/', '-').replace(':', '-')}.jsonl"


def write_results(folder: Path, results: Mapping[str, BenchResult]) -> None:
    """Write the results per env; nan is null."""
    write_json(folder / RESULTS, {env_id: result.numbers for env_id, result in results.items()})


def write_json(path: Path, value: JSON) -> None:
    """Write the file whole or not at all."""
    # A reader, or a run after a crash, must never find half a file.
    new = path.with_suffix(".new")
    new.write_text(json.dumps(finite(value), indent=1, sort_keys=True) + "\n")
    os.replace(new, path)


def finite(value: JSON) -> JSON:
    """The value with None for nan and infinities, which are no JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _grown(before: Mapping[str, JSON], now: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """The earlier request with the numbers of tasks and samples of the new one, if larger."""
    envs = dict(before["envs"])
    for env_id in envs.keys() & now["envs"].keys():
        old, new = envs[env_id], now["envs"][env_id]
        samples = samples_of(before, env_id), samples_of(now, env_id)
        # In tasks: more samples of fewer tasks would leave episodes without a place.
        is_more = old["episodes"] // samples[0] <= new["episodes"] // samples[1]
        if samples[0] <= samples[1] and is_more:
            own = {"limits": {**old["limits"], "samples": samples[1]}} if "limits" in old else {}
            envs[env_id] = {**old, "episodes": new["episodes"], **own}
    most = max(before.get("samples", 1), now.get("samples", 1))
    return {**before, "samples": most, "envs": envs}


def samples_of(request: Mapping[str, JSON], env_id: str) -> int:
    """Number of samples of a task of the env: the env's own, or that of the request."""
    of_run = {"samples": request.get("samples", 1)}
    return int({**of_run, **request["envs"][env_id].get("limits", {})}["samples"])


def _flat(value: JSON, name: str = "") -> dict[str, JSON]:
    """{"a": {"b": 1}} -> {"a.b": 1}, so that a difference is named by its own value."""
    if not isinstance(value, Mapping):
        return {name: value}
    parts = [_flat(item, f"{name}.{key}" if name else key) for key, item in value.items()]
    return {key: item for part in parts for key, item in part.items()}


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    # Windows has no fcntl: there, benchmarks work without --out.
    import fcntl

    # The kernel releases this lock with the process, also after a kill; a lock file would stay.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(f"another process plays into {folder}; name another folder") from error
    else:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def open_transcripts(
    path: Path | str, *, policy: str, price: Price | None = None
) -> Iterator[Callable[[Episode], None]]:
    """A function that appends an episode to the file, at once, as one line.

    The record has the policy, the score and Ludic's version too, so that lines of different runs
    can be joined into one file. policy: its name on the command line. price: as of `score`.
    An empty file is removed at the end.
    """
    path = Path(path)

    def about(episode: Episode) -> dict[str, Any]:
        facts = {"ludic": ludic_version(), "policy": policy, "score": score(episode, price)}
        # The cost of a call can then be read off its tokens.
        return facts if price is None else {**facts, "price": price}

    with open_records(path, about) as append:
        try:
            yield append
        finally:
            # An env that was interrupted before its first episode leaves no trace.
            if path.stat().st_size == 0:
                path.unlink()


def read_scores(path: Path | str) -> Iterator[Score]:
    """The scores in the file, one line at a time; none if there is no file.

    Raises DataError, with its number, for a line that is no record of a benchmark.
    """
    if Path(path).exists():
        yield from read_lines(path, lambda record: Score(**record["score"]))


def keep_finished(path: Path, tasks: Iterable[Task]) -> list[int]:
    """Remove episodes to be played again: those that the model did not end, and a cut line.

    Only the last line can be cut, by a crash, and then it has no end. A missing file stays missing.
    tasks: every episode gets the index of its task among them, and the task's group: both change
        with the number of samples.
    Returns the indices of the removed ones whose line is whole, in the order of the file.
    Raises DataError for an episode of none of the tasks.
    """
    failed: list[int] = []
    if not path.exists():
        return failed
    places = {_key(task): (i, task["group"]) for i, task in enumerate(map(to_json, tasks))}

    def finished_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            # A line without an end was cut by a crash and may be no JSON: it is not parsed.
            if not line.endswith(b"\n"):
                continue
            record: dict[str, Any] = json.loads(line)
            place = places.get(_key(record["task"]))
            if place is None:
                task = record["task"]
                raise DataError(f"{path} has an episode that this command does not play: {task}")
            if record["error"] is not None and record.get("blame") != "model":
                failed.append(place[0])
                continue
            is_moved = place != (record["index"], record["task"]["group"])
            yield _moved(record, *place) if is_moved else line

    with path.open("rb") as file:
        _rewrite(path, finished_lines(file))
    return failed


# Fields of a line beside those of the episode.
_ABOUT: Sequence[str] = ("ludic", "policy", "score", "price")


def _moved(record: dict[str, Any], index: int, group: str) -> bytes:
    """The line of an episode at another place, as it would be written there."""
    record["index"] = record["score"]["index"] = index
    record["task"]["group"] = group
    about = {name: record[name] for name in _ABOUT if name in record}
    return record_line(episode_from_json(record), about)


def _key(task: Mapping[str, Any]) -> str:
    return json.dumps([task["seed"], task["sampling"]["seed"], task["options"]])


def put_in_order(path: Path) -> None:
    """Sort the file's episodes by index: equal runs then have equal files.

    Only for files of whole lines, see `keep_finished`. A missing file stays missing.
    """
    if not path.exists():
        return
    # Only the positions of the lines are kept in memory: transcripts may be long.
    places, start = [], 0
    with path.open("rb") as file:
        for line in file:
            places.append((json.loads(line)["index"], start))
            start += len(line)

        def line_at(start: int) -> bytes:
            file.seek(start)
            return file.readline()

        _rewrite(path, (line_at(start) for _, start in sorted(places)))


def _rewrite(path: Path, lines: Iterable[bytes]) -> None:
    """Replace the file by the lines, atomically."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.writelines(lines)
        file.flush()
        # Otherwise a crash of the machine could leave the new name with no content.
        os.fsync(file.fileno())
    os.replace(new, path)


@cache
def ludic_version() -> str:
    """The installed version, read from its metadata once."""
    return version("ludic-gym")
