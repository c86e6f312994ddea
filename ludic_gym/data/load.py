"""Rows by name, read and parsed once per process.

    rows = load_rows("mine.jsonl", parse=lambda row: text_field(row, "question"), sample=SAMPLE)
    rows[0], len(rows), rows.origin.hash

`load_rows(None, ...)` has the bundled sample, and `load_rows("openai/gsm8k", ...)` a data set of
the hub.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, overload

from ludic_gym.data.fields import Fields, checked_fields, mapped
from ludic_gym.data.files import ENDINGS, INDEXED, Placed, file_rows, row_at
from ludic_gym.data.hub import HubData, hub_data, hub_rows, licence_of
from ludic_gym.data.layouts import in_layout, names_of
from ludic_gym.data.row import Row
from ludic_gym.errors import ConfigError, DataError, SampleWarning, SkippedRowsWarning

T = TypeVar("T")
HASH_DIGITS = 16
# Rows of larger files and data sets are read when they are asked for.
LARGE_BYTES = 64 * 2**20
OnBadRow = Literal["error", "skip"]
ON_BAD_ROW: tuple[OnBadRow, ...] = ("error", "skip")
# Reasons that an error or a report tells.
TOLD = 3


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
    skipped: number of rows that were left out, because they cannot be asked or graded.

    >>> str(Origin("rows.jsonl", "file", "0123456789abcdef", skipped=2))
    'rows.jsonl without 2 rows@0123456789abcdef'
    """

    name: str
    split: str
    hash: str
    skipped: int = 0

    def __str__(self) -> str:
        plural = "s" if self.skipped > 1 else ""
        without = f" without {self.skipped} row{plural}" if self.skipped else ""
        return f"{self.name}{without}@{self.hash}"

    @property
    def licence(self) -> str:
        """Licence of the rows, "not stated" for a file of the user."""
        return licence_of(self.name, self.split)


class Several(tuple[T, ...]):
    """Result of `parse` for a row with several questions, or with none that is asked."""


@dataclass(frozen=True, slots=True)
class BadRows:
    """Rows that cannot be asked or graded.

    count: their number. total: that of all rows. reasons: of the first of them, with their places.

    >>> print(BadRows(2, 100, ("line 5: no text in field 'answer' (it is None)",)))
    2 of 100 rows cannot be used: line 5: no text in field 'answer' (it is None); ...
    """

    count: int = 0
    total: int = 0
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = ("...",) if self.count > len(self.reasons) else ()
        reasons = "; ".join([*self.reasons, *more])
        return f"{self.count:,} of {self.total:,} rows cannot be used: {reasons}"


@dataclass(frozen=True, slots=True)
class Rows(Sequence[T], Generic[T]):
    """The parsed rows, in the order of the file or data set, and their origin.

    items: results of `parse`, shared by all callers in this process, so they should be frozen.
        Those of a large file are read and parsed when they are asked for.
    bad: the rows that were left out.
    """

    items: Sequence[T]
    origin: Origin
    bad: BadRows = field(default=BadRows())

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self.items[i] for i in range(len(self))[index])
        return self.items[index]

    def chosen(self, test: Callable[[T], bool]) -> Rows[T]:
        """The rows for which the test holds, in their order."""
        places = array("Q", (i for i, item in enumerate(self.items) if test(item)))
        items: Sequence[T] = _Chosen(self.items, places)
        if isinstance(self.items, tuple):
            items = tuple(items)
        return replace(self, items=items)


class _Chosen(Sequence[T]):
    """Some of the items of a sequence, by their places."""

    def __init__(self, items: Sequence[T], places: array[int]) -> None:
        self._items, self._places = items, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (`Rows` has the overloads)
        return self._items[self._places[index]]


class _ReadItems(Sequence[T]):
    """Items that are read and parsed when they are asked for.

    read: the row at a place. places: of each item's row. parts: number of each item in its row.
        Sixteen bytes an item.
    """

    def __init__(
        self,
        read: Callable[[int], Row],
        parsed: Parse[T],
        places: array[int],
        parts: array[int],
    ) -> None:
        self._read, self._parsed, self._places, self._parts = read, parsed, places, parts

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (`Rows` has the overloads)
        row = self._read(self._places[index])
        return self._parsed(row)[self._parts[index]]


def _row_of_file(file: File, place: int) -> Row:
    if _file(file.path, file.split) != file:
        raise DataError(f"{file.path}: has changed since it was read; make the environment again")
    return row_at(file.path, place, file.changed_ns)


@dataclass(frozen=True, slots=True)
class Parse(Generic[T]):
    """Items of a row, by a mapping of its fields or by the layouts of a kind.

    parse: of a row with the names that the environment reads. kind: of `in_layout`; "" for none.
    fields: the mapping, as items; () for none.
    """

    parse: Callable[[Row], T | Several[T]]
    kind: str = ""
    fields: tuple[tuple[str, str | tuple[str, ...]], ...] = ()

    def __call__(self, row: Row) -> tuple[T, ...]:
        """The items. Raises DataError for a row that cannot be used."""
        row = mapped(row, dict(self.fields)) if self.fields else in_layout(row, self.kind)
        item = self.parse(row)
        return item if isinstance(item, Several) else (item,)


def load_rows(
    name: str | None,
    parse: Callable[[Row], T | Several[T]],
    *,
    sample: Path,
    real: str = "",
    config: str | None = None,
    split: str | None = None,
    kind: str = "",
    fields: Fields | None = None,
    on_bad_row: OnBadRow = "error",
) -> Rows[T]:
    """All rows, parsed by `parse` and read once per process.

    name: the path of a .jsonl, .jsonl.gz, .parquet, .json or .csv file, of a folder that has such
        a file for each split ("test.jsonl"), a hub id ("openai/gsm8k"), or "sample" for the file
        `sample`. None: the sample, or the data set `real` if a split or config is given.
    config, split: part and split of a hub data set; the split is "test" unless given.
    kind: of the layouts of published data sets that are recognised, such as "maths"; "" for none.
    fields: columns of the fields that `parse` reads, by paths and templates (`Fields`), in place of
        a known layout.
    on_bad_row: "error" for one error that counts all rows which `parse` rejects, or "skip" to leave
        them out with a SkippedRowsWarning; `Rows.bad` has their number and the first reasons.
    Warns with SampleWarning, once per sample, where nothing names the sample.
    Raises ConfigError for a name that is none of these or has no splits, and for fields that cannot
    work; DataError for rows that are missing, unreadable, or rejected by `parse`.

    >>> import json
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "sums.jsonl"
    ...     _ = path.write_text(json.dumps({"q": "2 + 3", "gold": {"value": "5"}}))
    ...     answer = lambda row: row.fields["answer"]
    ...     rows = load_rows(str(path), answer, sample=path, fields={"answer": "gold.value"})
    >>> rows.items, rows.origin.name
    (('5',), 'sums.jsonl')
    """
    if on_bad_row not in ON_BAD_ROW:
        raise ConfigError(f"on_bad_row is one of {ON_BAD_ROW}, got {on_bad_row!r}")
    checked = () if fields is None else tuple(checked_fields(fields, names_of(kind)).items())
    origin = locate(name, sample=sample, real=real, config=config, split=split)
    rows = _load(origin, Parse(parse, kind, checked), on_bad_row)
    if name is None and rows.origin.split == "sample":
        _warn_of_sample(sample, len(rows), real)
    if rows.bad.count:
        warnings.warn(f"{rows.origin.name}: {rows.bad}", SkippedRowsWarning, stacklevel=2)
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
def _load(origin: File | HubData, parse: Parse[T], on_bad_row: OnBadRow) -> Rows[T]:
    """The rows and their hash, once per state of a file and per parser."""
    read: Callable[[int], Row]
    if isinstance(origin, HubData):
        name = f"{origin.id}:{origin.config}" if origin.config else origin.id
        table = hub_rows(origin)
        whence, read = Origin(name, origin.requested, ""), table.row_at
        is_large = table.size_bytes > LARGE_BYTES
        return parsed_rows(table, parse, whence, on_bad_row, read=read if is_large else None)
    name = "sample" if origin.split == "sample" else origin.path.name
    whence, read = Origin(name, origin.split, ""), partial(_row_of_file, origin)
    is_large = origin.size_bytes > LARGE_BYTES and origin.path.suffix in INDEXED
    rows = file_rows(origin.path)
    return parsed_rows(rows, parse, whence, on_bad_row, read=read if is_large else None)


def parsed_rows(
    rows: Iterable[Placed],
    parse: Parse[T],
    origin: Origin,
    on_bad_row: OnBadRow = "error",
    *,
    read: Callable[[int], Row] | None = None,
) -> Rows[T]:
    """The rows, parsed by `parse`, and their origin with the hash of their fields.

    read: the row at a place, if rows are to be read again when they are asked for.
    Raises DataError without rows, and for rows that `parse` rejects.
    """
    digest = hashlib.sha256()
    items: list[T] = []
    reasons: list[str] = []
    places, parts = array("Q"), array("Q")
    count = total = 0
    for place, row in rows:
        total += 1
        try:
            if isinstance(row, DataError):
                raise row
            parsed = parse(row)
        except DataError as error:
            count += 1
            if len(reasons) < TOLD:
                reasons.append(str(error))
            continue
        if read is None:
            items.extend(parsed)
        else:
            places.extend([place] * len(parsed))
            parts.extend(range(len(parsed)))
        # Sorted, so that equal rows of any file format have one hash.
        digest.update(json.dumps(dict(row.fields), sort_keys=True, default=str).encode())
    bad = BadRows(count, total, tuple(reasons))
    if count and on_bad_row == "error":
        raise DataError(
            f"{origin.name}: {bad} (fields={{'question': 'COLUMN', ...}} names other columns, "
            "on_bad_row='skip' leaves bad rows out)"
        )
    if not items and not places:
        none = f"none of {total} rows has a question" if total else "there are no rows"
        raise DataError(f"{origin.name}: {bad if count else none}")
    origin = replace(origin, hash=digest.hexdigest()[:HASH_DIGITS], skipped=count)
    if read is None:
        return Rows(tuple(items), origin, bad)
    return Rows(_ReadItems(read, parse, places, parts), origin, bad)
