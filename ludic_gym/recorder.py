"""Episodes of a run in rotated, compressed files: FOLDER/000001.jsonl.gz, 000002.jsonl.gz, ...

A line is a record of `ludic_gym.records` with four more fields before it:

    update    the update that the episode was played for; of an evaluation, the number before it;
              null for an actor's, which does not know it
    group     rollouts that were compared with each other; "" in an evaluation
    use       "train" or "evaluate"
    weights   per rollout its credit per step, or null for one that no update learned from; null as
              a whole where the credit is not known: in evaluations, at actors, and for algorithms
              that give it later, in the update

The trainer of a queue writes lines of its own beside those of its actors, with the credit of the
rollouts of a group in order, as `credit` in place of a record. `read_recorded` joins both.

Each call appends whole gzip members, so that a file ends in the middle of one only after a crash.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ludic_gym.errors import ConfigError, DataError
from ludic_gym.records import episode_from_json, record_line, task_key
from ludic_gym.rollout.outcome import failed_episode
from ludic_gym.types import Episode

Use = Literal["train", "evaluate"]
Weights = Sequence[Sequence[float] | None]
"""Per rollout of an episode, or of a group, its credit per step; None for one that was left out."""

Credit = Iterator[Sequence[float] | None]
ROLLOUTS = "rollouts"
"""Name of the folder in a run's."""
# A file is the least that is dropped.
FILES = 64
_HEAD = re.compile(rb'\{"update":(null|\d+),"group":("(?:[^"\\]|\\.)*"),"(use|credit)":')


class Recorder:
    """Writes the episodes of a run as they come, and drops the oldest where they get too many.

        recorder = Recorder("runs/first/rollouts", share=0.1)
        recorder.write(episodes, use="evaluate", update=100)

    share: of the tasks whose episodes are kept, always of the same ones.
    cap_gb: of all files of the folder together, those of other recorders included.
    writer: of several in one folder, the name that begins its files.
    Raises ConfigError for a share outside 0 to 1, and for a cap that is not above 0.
    """

    def __init__(
        self, folder: Path | str, *, share: float = 1.0, cap_gb: float = 4.0, writer: str = ""
    ) -> None:
        if not 0 <= share <= 1 or not cap_gb > 0:
            raise ConfigError(f"record={share} is a share from 0 to 1, record_gb={cap_gb} above 0")
        self.folder, self.share, self.writer = Path(folder), share, writer
        self._cap_bytes = cap_gb * 1e9
        self._path: Path | None = None
        self._written = 0

    def write(
        self,
        episodes: Sequence[Episode],
        *,
        use: Use,
        update: int | None = None,
        credit: Mapping[str, Weights] | None = None,
    ) -> None:
        """Append the episodes, those of a group in order. Raises OSError.

        credit: of the rollouts of each group that was learned from, in order; None if unknown.
        """
        rest = (
            None if credit is None else {group: iter(weights) for group, weights in credit.items()}
        )
        chosen = filter(self._is_chosen, episodes)
        self._append(b"".join(_line(episode, use, update, rest) for episode in chosen))

    def write_credit(self, update: int, credit: Mapping[str, Weights]) -> None:
        """Append the credit of groups that actors have written. Raises OSError."""
        lines = ({"update": update, "group": g, "credit": weights} for g, weights in credit.items())
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        self._append(text.encode("ascii") if self.share else b"")

    def _is_chosen(self, episode: Episode) -> bool:
        if self.share in (0, 1):
            return bool(self.share)
        # By the task, so that groups stay whole, and evaluations keep the same tasks.
        return int(task_key(replace(episode.task, group="")), 16) < self.share * 2**64

    def _append(self, lines: bytes) -> None:
        if not lines:
            return
        if self._path is None or self._written > self._cap_bytes / FILES:
            self._path, self._written = self._next_path(), 0
        with self._path.open("ab") as file:
            self._written += file.write(gzip.compress(lines, 1, mtime=0))

    def _next_path(self) -> Path:
        """The path of a further file, after the oldest ones have made room for it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files: list[tuple[int, int, Path]] = []
        for path in _files(self.folder):
            # Another recorder may have dropped it.
            with suppress(FileNotFoundError):
                stat = path.stat()
                files.append((stat.st_mtime_ns, stat.st_size, path))
        number = max((int(path.name.split(".")[0][-6:]) for *_, path in files), default=0) + 1
        used = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if used > self._cap_bytes * (1 - 1 / FILES):
                path.unlink(missing_ok=True)
                used -= size
        return self.folder / f"{self.writer}{'-' * bool(self.writer)}{number:06}.jsonl.gz"


def _line(
    episode: Episode, use: Use, update: int | None, credit: Mapping[str, Credit] | None
) -> bytes:
    group = episode.task.group
    weights = None if credit is None else _weights(episode, credit.get(group, iter(())))
    extra = {"update": update, "group": group, "use": use, "weights": weights}
    try:
        return record_line(episode, extra)
    except DataError as error:
        # An info that no file can hold must not end a training run.
        return record_line(failed_episode(episode, error), extra)


def _files(folder: Path) -> list[Path]:
    """The files of a folder, the trainer's first."""
    return sorted(folder.glob("*.jsonl.gz"))


def forget_after(folder: Path, update: int) -> None:
    """Drop what the trainer has written of later updates, and what a crash has cut."""
    for path in reversed([path for path in _files(folder) if path.name[0].isdigit()]):
        lines = list(_whole_lines(path))
        earlier = [line for line in lines if (_head(line)[0] or 0) <= update]
        draft = path.with_suffix(".new")
        draft.write_bytes(gzip.compress(b"".join(earlier), 1, mtime=0))
        draft.replace(path)
        # Files before it are older still; only the last one can be cut.
        if earlier and len(earlier) == len(lines):
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An episode that a run has kept.

    update: the update that it was played for, or the number of updates made before an evaluation;
        None for an actor's that no update was made from.
    use: "train" or "evaluate".
    weights: per rollout the credit per step, or None for one that was left out of the update; None
        as a whole where the credit is unknown.
    """

    episode: Episode
    update: int | None
    use: Use
    weights: Weights | None


def read_recorded(
    folder: Path | str, updates: Container[int | None] | None = None
) -> Iterator[Recorded]:
    """The episodes of a run, which may go on, from its folder of rollouts; by file.

    updates: leave out all others. Raises DataError for a record of another schema.

    >>> from tempfile import TemporaryDirectory
    >>> from ludic_gym.types import Task
    >>> failed = Episode(index=0, task=Task(env_id="ludic/Maze-v0", group="a"), error="it broke")
    >>> with TemporaryDirectory() as folder:
    ...     Recorder(folder).write([failed], use="train", update=7)
    ...     [(one.update, one.episode.error) for one in read_recorded(folder)]
    [(7, 'it broke')]
    """
    for update, credit, line in _lines(Path(folder)):
        if updates is not None and update not in updates:
            continue
        record = json.loads(line)
        episode, weights = episode_from_json(record), record["weights"]
        if credit is not None:
            weights = _weights(episode, credit)
        yield Recorded(episode=episode, update=update, use=record["use"], weights=weights)


def _weights(episode: Episode, credit: Credit) -> Weights:
    """The next weights of a group; failed episodes have no rollouts, and no credit."""
    return [next(credit, None) for _ in episode.rollouts]


def recorded_sizes(folder: Path) -> dict[int | None, tuple[int, int]]:
    """Episodes of each update, and characters of their lines, without reading these."""
    sizes: dict[int | None, tuple[int, int]] = {}
    for update, _, line in _lines(folder):
        episodes, chars = sizes.get(update, (0, 0))
        sizes[update] = episodes + 1, chars + len(line)
    return sizes


def _lines(folder: Path) -> Iterator[tuple[int | None, Credit | None, bytes]]:
    """Update, credit from the trainer's lines, and record, of each line with an episode."""
    credits: dict[str, tuple[int | None, Credit]] = {}
    for path in _files(folder):
        for line in _whole_lines(path):
            update, group, is_credit = _head(line)
            if is_credit:
                credits[group] = update, iter(json.loads(line)["credit"])
            elif update is None:
                yield *credits.get(group, (None, None)), line
            else:
                yield update, None, line


def _head(line: bytes) -> tuple[int | None, str, bool]:
    """Update, group, and True for a line of credit."""
    head = _HEAD.match(line)
    if head is None:
        raise DataError(f"no line of a recorder: {line[:80]!r}")
    return json.loads(head[1]), json.loads(head[2]), head[3] == b"credit"


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file up to the place where a crash has cut it, or where it is written to."""
    with suppress(EOFError, FileNotFoundError), gzip.open(path) as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line
