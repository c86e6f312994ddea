"""Transcripts of benchmarks: the lines of `ludic_gym.records`, each with a score."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from ludic_gym.bench.provenance import Provenance
from ludic_gym.bench.result import Price, Score, score
from ludic_gym.errors import DataError
from ludic_gym.records import episode_to_json, open_records, read_lines, to_json
from ludic_gym.types import Episode, Task


@contextmanager
def open_transcripts(
    path: Path, *, policy: str, price: Price | None = None, origin: Provenance | None = None
) -> Iterator[Callable[[Episode], None]]:
    """A function that appends an episode to the file, at once, as one line.

    policy: its name on the command line. price: as of `score`. origin: of the env's episodes.
    An empty file is removed at the end.
    """
    with open_records(
        path, partial(bench_record, policy=policy, price=price, origin=origin)
    ) as append:
        try:
            yield append
        finally:
            # An env that was interrupted before its first episode leaves no trace.
            if path.stat().st_size == 0:
                path.unlink()


def bench_record(
    episode: Episode, *, policy: str, price: Price | None = None, origin: Provenance | None = None
) -> dict[str, Any]:
    """The record of the episode, with the policy, the score, versions and the env's source."""
    # Each line is complete, so that lines of different runs can be joined into one file.
    about: dict[str, Any] = {
        "ludic": ludic_version(),
        "policy": policy,
        "score": asdict(score(episode, price)),
    }
    # The cost of a call can then be read off its tokens.
    if price is not None:
        about["price"] = price
    # The data is in the score, as the episode itself has named it.
    if origin is not None:
        about |= {"environment": origin.environment, "versions": origin.versions}
    return {**episode_to_json(episode), **about}


def read_scores(path: Path) -> Iterator[Score]:
    """The scores in the file, one line at a time; none if there is no file.

    Raises DataError, with its number, for a line that is no record of a benchmark.
    """
    if path.exists():
        yield from read_lines(path, lambda record: Score(**record["score"]))


def keep_finished(path: Path, tasks: Iterable[Task] = ()) -> None:
    """Remove episodes to be played again: failed ones, and a line that was cut by a crash.

    Only the last line can be cut, and then it has no line end. A missing file stays missing.
    tasks: if given, every episode gets the index of its task among them, and the task's group: both
        change with the number of samples.
    Raises DataError for an episode of none of the tasks.
    """
    if path.exists():
        places = {_key(t): (i, t["group"]) for i, t in enumerate(map(to_json, tasks))}
        with path.open("rb") as file:
            kept = filter(_is_finished, file)
            _rewrite(path, (_placed(line, places, path) for line in kept) if places else kept)


def _key(task: Mapping[str, Any]) -> str:
    return json.dumps([task["seed"], task["sampling"]["seed"], task["options"]])


def _placed(line: bytes, places: Mapping[str, tuple[int, str]], path: Path) -> bytes:
    """The line with the index and the group of its task."""
    record = json.loads(line)
    place = places.get(_key(record["task"]))
    if place is None:
        raise DataError(f"{path} has an episode that this command does not play: {record['task']}")
    index, group = place
    if (record["index"], record["task"]["group"]) == place:
        return line
    record["index"] = record["score"]["index"] = index
    record["task"]["group"] = group
    return f"{json.dumps(record)}\n".encode()


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
        _rewrite(path, (_line_at(file, start) for _, start in sorted(places)))


def _is_finished(line: bytes) -> bool:
    # A line without an end was cut by a crash and may be no JSON: it is not parsed.
    return line.endswith(b"\n") and json.loads(line)["error"] is None


def _line_at(file: BinaryIO, start: int) -> bytes:
    file.seek(start)
    return file.readline()


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
