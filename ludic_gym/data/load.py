"""Rows by name, read and parsed once per process.

    rows = load_rows("mine.jsonl", parse=lambda row: text_field(row, "question"), sample=SAMPLE)
    rows[0], len(rows), rows.origin.hash

`load_rows(None, ...)` has the bundled sample, and `load_rows("openai/gsm8k", ...)` a data set of
the hub.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Generic, TypeVar, overload

from ludic_gym.data.hub import HubData, hub_data, hub_rows, licence_of
from ludic_gym.data.row import ENDINGS, Row, file_rows
from ludic_gym.errors import ConfigError, DataError, SampleWarning

T = TypeVar("T")
HASH_DIGITS = 16


@dataclass(frozen=True, slots=True)
class File:
    """A local file in its current state: a changed file is another one, and read again.

    path: without links. changed_ns, size_bytes: its state, from which a change is seen.
    split: "sample" for the bundled one, the requested split in a folder, else "file".
    """

    path: Path
    split: str
    changed_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of rows, for results; without paths of the machine.

    name: "sample", the name of a file, or the id of a data set, with its config if there is one
        ("openai/gsm8k:main").
    split: "sample", "file", or the requested split.
    hash: 16 hexadecimal digits of the rows' content; equal for equal rows of any origin.

    >>> str(Origin("rows.jsonl", "file", "0123456789abcdef"))
    'rows.jsonl@0123456789abcdef'
    """

    name: str
    split: str
    hash: str

    def __str__(self) -> str:
        return f"{self.name}@{self.hash}"

    @property
    def licence(self) -> str:
        """Licence of the rows, "not stated" for a file of the user."""
        return licence_of(self.name, self.split)


@dataclass(frozen=True, slots=True)
class Rows(Sequence[T], Generic[T]):
    """The parsed rows, in the order of the file or data set, and their origin.

    items: results of `parse`, shared by all callers in this process, so they should be frozen.
    """

    items: tuple[T, ...]
    origin: Origin

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.items[index]


def load_rows(
    name: str | None,
    parse: Callable[[Row], T],
    *,
    sample: Path,
    real: str = "",
    config: str | None = None,
    split: str | None = None,
) -> Rows[T]:
    """All rows, parsed by `parse` and read once per process.

    name: the path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder that has such
        a file for each split ("test.jsonl"), a hub id ("openai/gsm8k"), or "sample" for the file
        `sample`. None: the sample, or the data set `real` if a split or config is given.
    config, split: part and split of a hub data set; the split is "test" unless given.
    Warns with SampleWarning, once per sample, where nothing names the sample.
    Raises ConfigError for a name that is none of these or has no splits, DataError for rows that
    are missing, unreadable, or rejected by `parse`.

    >>> import json
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sums.jsonl"
    ...     _ = path.write_text(json.dumps({"question": "2 + 3", "answer": "5"}))
    ...     rows = load_rows(str(path), lambda row: row.fields["answer"], sample=path)
    >>> rows.items, rows.origin.name
    (('5',), 'sums.jsonl')
    """
    origin = locate(name, sample=sample, real=real, config=config, split=split)
    rows = _load(origin, parse)
    if name is None and rows.origin.split == "sample":
        _warn_of_sample(sample, len(rows), real)
    return rows


@cache
def _warn_of_sample(sample: Path, count: int, real: str) -> None:
    """Warn of home-made rows taken by default. real: the data set of the split "test", or ""."""
    others = f'split="test" has those of {real}' if real else 'data="rows.jsonl" has others'
    text = f'these are {count} home-made questions ({sample.name}): {others}, data="sample" these'
    # Below: the call of the environment's class, which Gymnasium makes.
    warnings.warn(text, SampleWarning, stacklevel=3)


def locate(
    name: str | None,
    *,
    sample: Path,
    real: str = "",
    config: str | None = None,
    split: str | None = None,
) -> File | HubData:
    """The file or data set of that name; arguments and ConfigError as in `load_rows`.

    Nothing is read: a data set may turn out not to exist. Raises DataError for a file that does
    not exist, with the files of its folder.
    """
    if name is None:
        name = real if real and (split or config) else "sample"
    # By the name alone: a misspelled file is reported as one, and not looked for on the hub.
    if name == "sample" or name.endswith(ENDINGS):
        if split is not None:
            raise ConfigError(f"a file has no splits: data={name!r} goes without split={split!r}")
        return _file(sample, "sample") if name == "sample" else _file(Path(name), "file")
    folder = Path(name)
    # A folder without rows may be a data set's own, which its id names: the hub's library reads it.
    if folder.is_dir() and any(path.name.endswith(ENDINGS) for path in folder.iterdir()):
        return _file_of_split(folder, split or "test")
    # Hub ids have an owner, so that a name without one is a misspelt file.
    if "/" not in name:
        raise ConfigError(
            f'data is "sample", the path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file or '
            f'of a folder of them, or a hub id like "openai/gsm8k", got {name!r}'
        )
    return hub_data(name, config=config, split=split)


def _file_of_split(folder: Path, split: str) -> File:
    """The file of a split in a folder, with the first ending that exists; else DataError."""
    for ending in ENDINGS:
        path = folder / f"{split}{ending}"
        if path.is_file():
            return _file(path, split)
    there = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_file()))
    endings = ", ".join(ENDINGS[1:])
    raise DataError(f"{folder}: no file {split}{ENDINGS[0]} ({endings}); there are: {there}")


def _file(path: Path, split: str) -> File:
    """A file in its current state. Raises DataError if it cannot be read."""
    try:
        resolved = path.resolve(strict=True)
        status = resolved.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); is the path right?") from error
    return File(resolved, split, status.st_mtime_ns, status.st_size)


# Few: rows of a large data set take gigabytes.
@lru_cache(maxsize=16)
def _load(origin: File | HubData, parse: Callable[[Row], T]) -> Rows[T]:
    """The rows and their hash, once per state of a file and per parser."""
    if isinstance(origin, HubData):
        name = f"{origin.id}:{origin.config}" if origin.config else origin.id
        return parsed_rows(hub_rows(origin), parse, name=name, split=origin.requested)
    name = "sample" if origin.split == "sample" else origin.path.name
    return parsed_rows(file_rows(origin.path), parse, name=name, split=origin.split)


def parsed_rows(
    rows: Iterable[Row], parse: Callable[[Row], T], *, name: str, split: str
) -> Rows[T]:
    """The rows, parsed by `parse`, with the hash of their fields.

    name, split: those of their `Origin`. Raises DataError without rows, and the errors of `parse`.
    """
    digest, items = hashlib.sha256(), []
    for row in rows:
        items.append(parse(row))
        # Sorted, so that equal rows of any file format have one hash.
        digest.update(json.dumps(dict(row.fields), sort_keys=True, default=str).encode())
    if not items:
        raise DataError(f"{name}: there are no rows")
    return Rows(tuple(items), Origin(name, split, digest.hexdigest()[:HASH_DIGITS]))
