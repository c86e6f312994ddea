"""The tokens of all rows of a group, one array per stream, as bytes and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from ludic_gym.errors import DataError
from ludic_gym.sampling_masks import unpacked_masks
from ludic_train.errors import BadGroup
from ludic_train.expert_text import UNKNOWN
from ludic_train.pipeline.codec_arrays import (
    Array,
    Count,
    Runs,
    all_finite,
    array_of,
    bits_of,
    joined,
    repeated,
    runs_of,
    spread,
)
from ludic_train.types import SAWItem

INT, SHORT, FLOAT = "<i4", "<i2", "<f4"


# Sequences and not maps: the names of the fields would be longer than a short row.
class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A row, less its tokens: their number, and the streams that it has.

    masks: as `SAWItem.sampling_mask`, of its sampled tokens; or None.
    temperature: of sampling, finite and greater than 0.
    experts: layers, k, and int16 [T, layers, k] of a mixture of experts, or None.
    """

    length: Count
    has_logprobs: bool
    has_versions: bool
    masks: bytes | None
    temperature: float
    experts: tuple[Count, Count, bytes] | None


class Tokens(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The tokens of all rows in order, T of them; M were sampled.

    ids: int32 [T]. mask: T bits, lowest first. logprobs: float32, of the sampled tokens of the rows
        that have some.
    versions, steps: runs of equal numbers over the sampled tokens, since a whole call has the same;
        `versions` of the rows that have some.
    """

    ids: bytes
    mask: bytes
    logprobs: bytes
    versions: Runs
    steps: Runs


def packed_row(row: SAWItem) -> Row:
    """The row as it is sent, without its weight. Raises BadGroup for arrays of other lengths."""
    if row.attachments:
        raise BadGroup(f"a row has attachments {[*row.attachments]}: only the trainer adds them")
    logprobs, versions, e = row.behavior_logprobs, row.versions, row.experts
    arrays = row.action_mask, logprobs, versions, row.steps, e
    lengths = sorted({len(array) for array in arrays if array is not None})
    if lengths != [len(row.input_ids)] or row.steps is None:
        raise BadGroup(f"a row of {len(row.input_ids)} tokens has arrays of {lengths}, or no steps")
    return Row(
        length=len(row.input_ids),
        has_logprobs=logprobs is not None,
        has_versions=versions is not None,
        masks=row.sampling_mask,
        temperature=row.temperature,
        experts=None if e is None else (*e.shape[1:], e.astype(SHORT).tobytes()),
    )


def packed_tokens(rows: Sequence[SAWItem]) -> Tokens:
    """The tokens of the rows, whose arrays have the same lengths."""
    mask = joined([row.action_mask for row in rows], np.bool_)

    def sampled(streams: list[Array | None], dtype: str) -> Array:
        # Off the mask a stream holds no facts: its values there are not sent.
        pairs = zip(streams, rows, strict=True)
        masks = [row.action_mask for stream, row in pairs if stream is not None]
        present = [stream for stream in streams if stream is not None]
        where = mask if len(present) == len(rows) else joined(masks, np.bool_)
        return joined(present, dtype)[where]

    return Tokens(
        ids=joined([row.input_ids for row in rows], INT).tobytes(),
        mask=np.packbits(mask, bitorder="little").tobytes(),
        logprobs=sampled([row.behavior_logprobs for row in rows], FLOAT).tobytes(),
        versions=runs_of(sampled([row.versions for row in rows], INT)),
        steps=runs_of(sampled([row.steps for row in rows], INT)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Streams of all rows, [T] each, as in `SAWItem`; read-only. weight: of the longest row."""

    input_ids: Array
    action_mask: NDArray[np.bool_]
    weight: Array
    behavior_logprobs: Array
    versions: Array
    steps: Array


def streams_of(found: Tokens, rows: Sequence[Row], num_steps: Sequence[int]) -> Streams:
    """The streams of the rows.

    num_steps: of the rollout that each row belongs to.
    Raises BadGroup for rows that cannot be learned from.
    """
    ids, lengths = (
        array_of(found.ids, INT, "input_ids"),
        np.array([row.length for row in rows], int),
    )
    if (claimed := int(lengths.sum())) != len(ids):
        raise BadGroup(f"{len(ids)} input_ids for rows of {claimed} tokens together")
    mask = bits_of(found.mask, len(ids))
    # The first token has no token before it that could predict it, so it has no log-prob to train.
    if not lengths.all() or mask[lengths.cumsum() - lengths].any():
        raise BadGroup("a row must begin with a token, and with one that was not sampled")
    if len(ids) and (lowest := ids.min()) < 0:
        raise BadGroup(f"a token id is {lowest}")
    _check_temperatures(rows)
    sampled = int(np.count_nonzero(mask))
    priced = _of_rows(mask, [row.has_logprobs for row in rows], lengths)
    values = array_of(found.logprobs, FLOAT, "behavior_logprobs")
    if len(values) != (expected := sampled if priced is mask else np.count_nonzero(priced)):
        raise BadGroup(f"{len(values)} log-probs for {expected} tokens")
    if not all_finite(values):
        raise BadGroup("a log-prob of a sampled token is not finite")
    logprobs = np.zeros(len(ids), np.float32)
    logprobs[priced] = values
    dated = _of_rows(mask, [row.has_versions for row in rows], lengths)
    num_dated = sampled if dated is mask else int(np.count_nonzero(dated))
    versions = repeated(found.versions, num_dated, "versions")
    steps = repeated(found.steps, sampled, "steps")
    _check_steps(steps, mask, lengths, num_steps)
    streams = Streams(
        input_ids=ids,
        action_mask=mask,
        weight=np.zeros(lengths.max(initial=0), np.float32),
        behavior_logprobs=logprobs,
        versions=spread(versions, dated),
        steps=spread(steps, mask),
    )
    for name in Streams.__slots__:
        getattr(streams, name).flags.writeable = False
    return streams


def _of_rows(mask: NDArray[np.bool_], has: list[bool], lengths: Array) -> NDArray[np.bool_]:
    """The mask, without the tokens of rows that do not have a stream."""
    return mask if all(has) else mask & np.repeat(np.array(has, np.bool_), lengths)


def _check_temperatures(rows: Sequence[Row]) -> None:
    """Raise BadGroup for a temperature that cannot be sampled with."""
    for row in rows:
        if not 0 < row.temperature < math.inf:
            raise BadGroup(f"temperature={row.temperature} must be finite and greater than 0")


def _check_steps(
    steps: Array | int, mask: NDArray[np.bool_], lengths: Array, num_steps: Sequence[int]
) -> None:
    """Raise BadGroup for a step that its rollout does not have.

    steps: [M] of the sampled tokens, or a number if all have the same one.
    """
    # Nearly always true, and then the limit of each single token need not be known.
    if np.size(steps) == 0 or np.max(steps) < min(num_steps):
        return
    limits = np.repeat(np.array(num_steps), lengths)[mask]
    if (steps >= limits).any():
        raise BadGroup("a row has tokens of none of the steps of its rollout")


def experts_of(found: tuple[int, int, bytes], length: int) -> Array:
    """Experts [T, layers, k]. Raises BadGroup for another number of them, or a negative one."""
    layers, k, raw = found
    values = array_of(raw, SHORT, "experts")
    if not values.size or values.size != length * layers * k:
        raise BadGroup(f"{values.size} experts for {length} tokens of {layers} layers and {k} each")
    if values.min() < UNKNOWN:
        raise BadGroup(f"an expert is {values.min()}")
    return values.reshape(length, layers, k)


def checked_masks(packed: bytes, drawn: Array) -> bytes:
    """The sampling masks. Raises BadGroup for bytes that are no masks of the drawn tokens."""
    try:
        unpacked_masks(packed, drawn)
    except DataError as error:
        raise BadGroup(str(error)) from error
    return packed
