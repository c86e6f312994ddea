"""Transcripts of benchmarks: the lines of `ludic_gym.records`, each with a score."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from ludic_gym.bench.result import Price, Score, score
from ludic_gym.records import episode_to_json, open_records, read_lines
from ludic_gym.types import Episode


@contextmanager
def open_transcripts(
    path: Path, *, policy: str, price: Price | None = None
) -> Iterator[Callable[[Episode], None]]:
    """A function that appends an episode to the file, at once, as one line.

    policy: its name on the command line. price: as of `score`. An empty file is removed at the end.
    """
    with open_records(path, partial(bench_record, policy=policy, price=price)) as append:
        try:
            yield append
        finally:
            # An env that was interrupted before its first episode leaves no trace.
            if path.stat().st_size == 0:
                path.unlink()


def bench_record(episode: Episode, *, policy: str, price: Price | None = None) -> dict[str, Any]:
    """The record of the episode, with the policy, the version of Ludic, and the score."""
    # Each line is complete, so that lines of different runs can be joined into one file.
    about = {"ludic": ludic_version(), "policy": policy, "score": asdict(score(episode, price))}
    return {**episode_to_json(episode), **about}


def read_scores(path: Path) -> Iterator[Score]:
    """The scores in the file, one line at a time; none if there is no file.

    Raises DataError, with its number, for a line that is no record of a benchmark.
    """
    if path.exists():
        yield from read_lines(path, lambda record: Score(**record["score"]))


def keep_finished(path: Path) -> None:
    """Remove episodes to be played again: failed ones, and a line that was cut by a crash.

    Only the last line can be cut, and then it has no line end. A missing file stays missing.
    """
    if path.exists():
        with path.open("rb") as file:
            _rewrite(path, filter(_is_finished, file))


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
