"""The tokens of all rows of a group, one array per stream, as bytes and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from ludic_gym.errors import DataError
from ludic_gym.sampling_masks import unpacked_masks
from ludic_train.cluster.codec_arrays import (
    Array,
    Count,
    Runs,
    array_of,
    bits_of,
    highest,
    joined,
    joined_runs,
    off_mask,
    repeated,
    runs_of,
    spread,
)
from ludic_train.errors import BadGroup
from ludic_train.expert_text import UNKNOWN
from ludic_train.types import SAWItem

INT, SHORT, FLOAT = np.dtype("<i4"), np.dtype("<i2"), np.dtype("<f4")


# Sequences and not maps: the names of the fields would be longer than a short row.
class Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
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


class Tokens(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
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

    def sampled(streams: list[Array | None], dtype: DTypeLike) -> Array:
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


def joined_tokens(found: Sequence[Tokens], rows: Sequence[Sequence[Row]]) -> Tokens | None:
    """The tokens of several groups as those of one; None where some do not fit the rows of theirs.

    None too where a row lacks a stream, or a group has no token.
    """
    bits, start = 0, 0
    for tokens, of in zip(found, rows, strict=True):
        length, mask = sum([row.length for row in of]), int.from_bytes(tokens.mask, "little")
        sampled = mask.bit_count()
        sizes = (len(tokens.ids), len(tokens.mask), len(tokens.logprobs))
        # All that says where one group ends and the next begins; `streams_of` checks the rest.
        fits = (
            length > 0
            and sizes == (INT.itemsize * length, (length + 7) // 8, FLOAT.itemsize * sampled)
            and mask.bit_length() <= length
            and sum([count for _, count in tokens.versions]) == sampled
            and sum([count for _, count in tokens.steps]) == sampled
            and False not in [row.has_logprobs and row.has_versions for row in of]
        )
        if not fits:
            return None
        bits |= mask << start
        start += length
    return Tokens(
        ids=b"".join([tokens.ids for tokens in found]),
        mask=bits.to_bytes((start + 7) // 8, "little"),
        logprobs=b"".join([tokens.logprobs for tokens in found]),
        versions=joined_runs([tokens.versions for tokens in found]),
        steps=joined_runs([tokens.steps for tokens in found]),
    )


class Streams(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """Streams of all rows, [T] each, as in `SAWItem`; read-only. weight: of the longest row."""

    input_ids: Array
    action_mask: NDArray[np.bool_]
    weight: Array
    behavior_logprobs: Array
    versions: Array
    steps: Array


class Bounds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The least and the largest values of the tokens of a group.

    num_rows: rows of the group. largest_id: of tokens; -1 for none.
    oldest: version of the oldest sampled token; None if a row does not say it, or none was sampled.
    newest: version of the newest one; 0 if none is known.
    logprobs: of the sampled tokens; 0 is between them. temperatures: of the rows; None for none.
    """

    num_rows: int
    largest_id: int
    oldest: int | None
    newest: int
    logprobs: tuple[float, float]
    temperatures: tuple[float, float] | None


def streams_of(
    found: Tokens, rows: Sequence[Row], num_steps: Sequence[int]
) -> tuple[Streams, Bounds]:
    """The streams of the rows, and their bounds.

    num_steps: of the rollout that each row belongs to.
    Raises BadGroup for rows that cannot be learned from.
    """
    ids, lengths = array_of(found.ids, INT, "input_ids"), [row.length for row in rows]
    if (claimed := sum(lengths)) != len(ids):
        raise BadGroup(f"{len(ids)} input_ids for rows of {claimed} tokens together")
    mask = bits_of(found.mask, len(ids))
    # The first token has no token before it that could predict it, so it has no log-prob to train.
    if not all(lengths) or _marked(found.mask, lengths):
        raise BadGroup("a row must begin with a token, and with one that was not sampled")
    # Without their sign, negative numbers are the largest: one look instead of two.
    if (largest := highest(ids.view(np.uint32))) >= 2**31:
        raise BadGroup(f"a token id is {ids.min()}")
    sampled = int(np.count_nonzero(mask))
    priced = _of_rows(mask, [row.has_logprobs for row in rows], lengths)
    num_priced = sampled if priced is mask else int(np.count_nonzero(priced))
    values, limits = _logprobs(found.logprobs, num_priced)
    logprobs = np.zeros(len(ids), np.float32)
    logprobs[priced] = values
    dated = _of_rows(mask, [row.has_versions for row in rows], lengths)
    num_dated = sampled if dated is mask else int(np.count_nonzero(dated))
    versions = repeated(found.versions, num_dated, "versions")
    steps = repeated(found.steps, sampled, "steps")
    _check_steps(steps, mask, lengths, num_steps)
    off = off_mask(mask)
    streams = Streams(
        input_ids=ids,
        action_mask=mask,
        weight=np.zeros(max(lengths, default=0), np.float32),
        behavior_logprobs=logprobs,
        versions=spread(versions, dated, off if dated is mask else off_mask(dated)),
        steps=spread(steps, mask, off),
    )
    for array in (mask, streams.weight, logprobs, streams.versions, streams.steps):
        array.setflags(write=False)
    known = [version for version, length in found.versions if length]
    bounds = Bounds(
        num_rows=len(rows),
        largest_id=largest,
        oldest=min(known, default=None) if dated is mask else None,
        newest=max(known, default=0),
        logprobs=limits,
        temperatures=_temperatures(rows),
    )
    return streams, bounds


def bounds_of_each(
    found: Sequence[Tokens], rows: Sequence[Sequence[Row]], streams: Streams
) -> list[Bounds]:
    """The bounds of each of several groups whose tokens were joined."""
    starts = [0, *accumulate(len(tokens.ids) // INT.itemsize for tokens in found)][:-1]
    largest = np.maximum.reduceat(streams.input_ids, starts).tolist()
    # Each row begins with a token that was not sampled, which has a 0.
    least = np.minimum.reduceat(streams.behavior_logprobs, starts).tolist()
    most = np.maximum.reduceat(streams.behavior_logprobs, starts).tolist()
    bounds = []
    for number, (tokens, of) in enumerate(zip(found, rows, strict=True)):
        known = [version for version, length in tokens.versions if length]
        bounds.append(
            Bounds(
                num_rows=len(of),
                largest_id=largest[number],
                oldest=min(known, default=None),
                newest=max(known, default=0),
                logprobs=(least[number], most[number]),
                temperatures=_temperatures(of),
            )
        )
    return bounds


def _marked(bits: bytes, lengths: Sequence[int]) -> bool:
    """True if the bit of the first token of a row is set."""
    # Of the few bytes: an index into the mask takes three times as long.
    start = 0
    for length in lengths:
        if bits[start >> 3] >> (start & 7) & 1:
            return True
        start += length
    return False


def _logprobs(raw: bytes, expected: int) -> tuple[NDArray[np.float32], tuple[float, float]]:
    """So many log-probs, the least of them and 0, and the largest of them and 0.

    Raises BadGroup for another number of them, and for one that is not finite.
    """
    values = array_of(raw, FLOAT, "behavior_logprobs")
    if len(values) != expected:
        raise BadGroup(f"{len(values)} log-probs for {expected} tokens")
    if not expected:
        return values, (0.0, 0.0)
    # By their places, as in `highest`. Of several numbers with a nan, both are nan.
    least, most = float(values.item(values.argmin())), float(values.item(values.argmax()))
    if not (math.isfinite(least) and math.isfinite(most)):
        raise BadGroup("a log-prob of a sampled token is not finite")
    return values, (min(least, 0.0), max(most, 0.0))


def _of_rows(mask: NDArray[np.bool_], has: list[bool], lengths: Sequence[int]) -> NDArray[np.bool_]:
    """The mask, without the tokens of rows that do not have a stream."""
    return mask if all(has) else mask & np.repeat(np.array(has, np.bool_), lengths)


def _temperatures(rows: Sequence[Row]) -> tuple[float, float] | None:
    """The least and the largest one. Raises BadGroup for one that cannot be sampled with."""
    # Nearly always one for all rows.
    if not (found := {row.temperature for row in rows}):
        return None
    for each in found:
        if not 0 < each < math.inf:
            raise BadGroup(f"temperature={each} must be finite and greater than 0")
    return min(found), max(found)


def _check_steps(
    steps: Array | int,
    mask: NDArray[np.bool_],
    lengths: Sequence[int],
    num_steps: Sequence[int],
) -> None:
    """Raise BadGroup for a step that its rollout does not have.

    steps: [M] of the sampled tokens, or a number if all have the same one.
    """
    # Nearly always true, and then the limit of each single token need not be known.
    last = steps if isinstance(steps, int) else highest(steps)
    if last < min(num_steps, default=0):
        return
    limits = np.repeat(np.array(num_steps, int), lengths)[mask]
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


def with_masks(bounds: Bounds, rows: Sequence[SAWItem]) -> Bounds:
    """The bounds, with the token ids of the rows' sampling masks.

    Raises BadGroup for bytes that are no masks of the sampled tokens.
    """
    largest = bounds.largest_id
    for row in rows:
        assert row.sampling_mask is not None
        try:
            _, ids = unpacked_masks(row.sampling_mask, row.input_ids[row.action_mask])
        except DataError as error:
            raise BadGroup(str(error)) from error
        largest = max(largest, int(ids.max(initial=-1)))
    return msgspec.structs.replace(bounds, largest_id=largest)
