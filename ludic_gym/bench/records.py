"""Transcripts of benchmarks: lines that `ludic_gym.records.read_episodes` reads, and a score."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ludic_gym.bench.result import score
from ludic_gym.errors import ConfigError
from ludic_gym.records import episode_to_json
from ludic_gym.types import Episode


@contextmanager
def open_transcripts(path: Path, *, policy: str) -> Iterator[Callable[[Episode], None]]:
    """A function that appends an episode to the new file, at once, as one line.

    policy: how the policy is written on the command line.
    Raises ConfigError if the file exists: a run is never overwritten. A file into which nothing
    was written is removed again.
    """
    refuse_earlier_run(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="ascii") as file:

        def append(episode: Episode) -> None:
            file.write(json.dumps(bench_record(episode, policy=policy)) + "\n")
            file.flush()

        try:
            yield append
        finally:
            if file.tell() == 0:
                path.unlink()


def refuse_earlier_run(path: Path) -> None:
    """Raises ConfigError if there are transcripts already."""
    if path.exists():
        raise ConfigError(f"{path} holds an earlier run; name another folder")


def bench_record(episode: Episode, *, policy: str) -> dict[str, Any]:
    """The episode's own record, with who played it, with which Ludic, and what it came to."""
    about = {"ludic": ludic_version(), "policy": policy, "score": asdict(score(episode))}
    return {**episode_to_json(episode), **about}


@cache
def ludic_version() -> str:
    """The installed version, read from its metadata once."""
    return version("ludic-gym")
