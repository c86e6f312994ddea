"""Transcripts of benchmarks: the lines of `ludic_gym.records`, each with a score."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ludic_gym.bench.result import Score, score
from ludic_gym.errors import DataError
from ludic_gym.records import episode_to_json
from ludic_gym.types import Episode


@contextmanager
def open_transcripts(path: Path, *, policy: str) -> Iterator[Callable[[Episode], None]]:
    """A function that appends an episode to the file, at once, as one line.

    policy: its name on the command line. An empty file is removed at the end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="ascii") as file:

        def append(episode: Episode) -> None:
            file.write(json.dumps(bench_record(episode, policy=policy)) + "\n")
            file.flush()

        try:
            yield append
        finally:
            if file.tell() == 0:
                path.unlink()


def bench_record(episode: Episode, *, policy: str) -> dict[str, Any]:
    """The record of the episode, with the policy, the version of Ludic, and the score."""
    about = {"ludic": ludic_version(), "policy": policy, "score": asdict(score(episode))}
    return {**episode_to_json(episode), **about}


def read_scores(path: Path) -> Iterator[Score]:
    """The scores in the file, one line at a time; none if there is no file.

    Raises DataError, with its number, for a line that is no record of a benchmark.
    """
    if not path.exists():
        return
    with path.open(encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            try:
                yield Score(**json.loads(line)["score"])
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}, line {number}, is no record of `ludic bench`: {error!r}"
                ) from error


def keep_finished(path: Path) -> None:
    """Remove episodes to be played again: failed ones, and a line that was cut by a crash.

    Only the last line can be cut, and then it has no line end. A missing file stays missing.
    """
    if path.exists():
        _rewrite(path, lambda lines: (line for line in lines if _is_finished(line)))


def put_in_order(path: Path) -> None:
    """Sort the file's episodes by index: equal runs then have equal files."""
    if not path.exists():
        return
    # Only the positions of the lines are kept in memory: transcripts may be long.
    places = []
    with path.open("rb") as file:
        start = 0
        for line in file:
            places.append((json.loads(line)["index"], start))
            start += len(line)

        def in_order(_: Iterator[bytes]) -> Iterator[bytes]:
            for _, place in sorted(places):
                file.seek(place)
                yield file.readline()

        _rewrite(path, in_order)


def _is_finished(line: bytes) -> bool:
    return line.endswith(b"\n") and json.loads(line)["error"] is None


def _rewrite(path: Path, change: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
    """Replace the file by its changed lines, atomically."""
    new = path.with_suffix(".new")
    with path.open("rb") as old, new.open("wb") as file:
        file.writelines(change(iter(old)))
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


@cache
def ludic_version() -> str:
    """The installed version, read from its metadata once."""
    return version("ludic-gym")
