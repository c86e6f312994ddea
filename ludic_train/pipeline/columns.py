"""The rows of a group one after the other, to be checked and sent in a few array operations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludic_train.errors import BadGroup
from ludic_train.types import SAWItem

LOGPROBS, VERSIONS, STEPS = "behavior_logprobs", "versions", "steps"
# Integer streams are -1 off the mask, all others 0.
INTEGERS = (VERSIONS, STEPS)
ATTACHED = "attachments/"
Array = NDArray[Any]
# The values of a stream, and the rows that have it.
Stream = tuple[Sequence[int], Array]


@dataclass(frozen=True)
class Spans:
    """R rows of N tokens in all, and which of these were sampled. lengths: int32 [R]. mask: [N]."""

    lengths: Array
    mask: NDArray[np.bool_]

    @cached_property
    def starts(self) -> list[int]:
        """Where rows begin."""
        return list(accumulate(self.lengths.tolist(), initial=0))[:-1]

    @cached_property
    def marks(self) -> Array:
        """All ones where a token was sampled, else all zeros: int32 [N]."""
        return -self.mask.astype(np.int32)

    @cached_property
    def firsts(self) -> Array:
        """Where, among sampled tokens, the first of each row is; the next row's if it has none."""
        return np.searchsorted(np.flatnonzero(self.mask), self.starts)

    def part(self, rows: Sequence[int]) -> Spans:
        """Some of the rows, which are in order."""
        if len(rows) == len(self.lengths):
            return self
        chosen = np.isin(np.arange(len(self.lengths)), rows)
        return Spans(self.lengths[chosen], self.mask[np.repeat(chosen, self.lengths)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """R rows of N tokens in all.

    ids: int32 [N]. temperatures: float64 [R].
    streams: by name, such as "behavior_logprobs" or "attachments/advantage": float32, or int32 for
        those in INTEGERS.
    """

    spans: Spans
    ids: Array
    temperatures: Array
    streams: Mapping[str, Stream]


def columns_of(items: Sequence[SAWItem]) -> Columns:
    """The columns of rows. Raises BadGroup for a row that is empty, or whose arrays do not fit."""
    if not all(len(item.input_ids) for item in items):
        raise BadGroup(f"one of the {len(items)} rows has no tokens")
    named = [_named(item) for item in items]
    names = sorted({name for each in named for name in each})
    return Columns(
        spans=Spans(
            np.array([len(item.input_ids) for item in items], np.int32),
            _joined([item.action_mask for item in items], np.bool_),
        ),
        ids=_joined([item.input_ids for item in items], np.int32),
        temperatures=np.array([item.temperature for item in items], np.float64),
        streams={name: _stream(name, named) for name in names},
    )


def check(columns: Columns) -> None:
    """Raise BadGroup, with the reason, for rows that cannot be learned from."""
    spans, heat = columns.spans, columns.temperatures.tolist()
    if any(spans.mask[start] for start in spans.starts):
        raise BadGroup("a row must begin with a token that was not sampled")
    if (lowest := int(columns.ids.min(initial=0))) < 0:
        raise BadGroup(f"a token id is {lowest}")
    if not all(0 < temperature < math.inf for temperature in heat):
        raise BadGroup(f"temperature={heat[:8]} must be finite and greater than 0")
    for name, (rows, values) in columns.streams.items():
        if name in INTEGERS:
            if ((values < 0) & spans.part(rows).mask).any():
                raise BadGroup(f"{name} lacks that of a sampled token")
        elif not np.isfinite(values).all():
            raise BadGroup(f"{name} holds a value that is not finite")


def items_of(
    columns: Columns, *, group: str, agents: Sequence[str], truncated: Sequence[bool]
) -> Iterator[SAWItem]:
    """The rows again, as views of the columns, with weight 0. agents, truncated: by row."""
    lengths: list[int] = columns.spans.lengths.tolist()
    by_row: list[dict[str, Array]] = [{} for _ in lengths]
    for name, (rows, values) in columns.streams.items():
        end = 0
        for row in rows:
            start, end = end, end + lengths[row]
            by_row[row][name] = values[start:end]
    weight = np.zeros(len(columns.ids), np.float32)
    end = 0
    for length, streams, temperature, agent, was_truncated in zip(
        lengths, by_row, columns.temperatures.tolist(), agents, truncated, strict=True
    ):
        start, end = end, end + length
        yield SAWItem(
            input_ids=columns.ids[start:end],
            action_mask=columns.spans.mask[start:end],
            weight=weight[start:end],
            behavior_logprobs=streams.pop(LOGPROBS, None),
            versions=streams.pop(VERSIONS, None),
            steps=streams.pop(STEPS),
            temperature=temperature,
            truncated=was_truncated,
            group=group,
            agent=agent,
            attachments={name.removeprefix(ATTACHED): a for name, a in streams.items()},
        )


def dtype_of(name: str) -> type[np.int32] | type[np.float32]:
    """Type of a stream's values."""
    return np.int32 if name in INTEGERS else np.float32


def _named(item: SAWItem) -> dict[str, Array]:
    usual = {LOGPROBS: item.behavior_logprobs, VERSIONS: item.versions, STEPS: item.steps}
    attached = {ATTACHED + name: array for name, array in item.attachments.items()}
    streams: dict[str, Array] = {n: a for n, a in usual.items() if a is not None} | attached
    for name, array in {"action_mask": item.action_mask, **streams}.items():
        if len(array) != len(item.input_ids):
            raise BadGroup(f"{name} has {len(array)} values for {len(item.input_ids)} tokens")
    return streams


def _stream(name: str, named: Sequence[Mapping[str, Array]]) -> Stream:
    rows = [row for row, each in enumerate(named) if name in each]
    return rows, _joined([named[row][name] for row in rows], dtype_of(name))


def _joined(arrays: Sequence[Array], dtype: type[Any]) -> Array:
    whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays or [np.empty(0, dtype)])
    return np.ascontiguousarray(whole, dtype)
