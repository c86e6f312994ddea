"""Groups as bytes that anybody may have written: reading them runs nothing and trusts nothing.

    0   4 s  magic "LDCG"        5   u8   compression: 0 none, 1 zstd
    4   u8   schema              6   u32  bytes of the body, uncompressed
                                10   u32  CRC-32 of the 10 bytes before and of all after
    14  the body: msgpack of a `_Group`, arrays as raw little-endian bytes

All numbers are little-endian. `wire.py` is the sibling for ranks of one program, which share their
code and need none of these checks.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from ludic_train.errors import BadGroup
from ludic_train.groups import SAWGroup, check_item
from ludic_train.metrics import Metrics
from ludic_train.saw import SAWItem
from ludic_train.wire import KINDS

MAGIC, SCHEMA = b"LDCG", 1
PLAIN, ZSTD = 0, 1
MAX_BYTES = 64 * 2**20
MAX_KEY = 200
_HEAD, _SUM = struct.Struct("<4sBBI"), struct.Struct("<I")
_START = _HEAD.size + _SUM.size
INT, FLOAT, DOUBLE = "<i4", "<f4", "<f8"
LOGPROBS, VERSIONS, ATTACHED = "behavior_logprobs", "versions", "attachments/"
Array = NDArray[Any]


class _Group(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The rows of a group one after the other: one array per stream, however many rows there are.

    streams: what only some rows may have, by name: the rows that have it, and their values.
    """

    key: str
    actor: str
    lengths: bytes
    ids: bytes
    mask: bytes
    weight: bytes
    temperatures: bytes
    streams: dict[str, tuple[list[int], bytes]]
    groups: list[str]
    agents: list[str]
    metrics: dict[str, tuple[str, list[float]]]


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Group)


def group_to_bytes(
    group: SAWGroup, *, max_bytes: int = MAX_BYTES, zstd_level: int | None = None
) -> bytes:
    """The group as one message, compressed by zstd where a level is given.

    Raises BadGroup for a group that `group_from_bytes` would refuse.
    """
    _check_key(group.key)
    if not group.items:
        raise BadGroup("no row")
    for item in group.items:
        check_item(item)
    body = _ENCODER.encode(_packed(group))
    if len(body) > max_bytes:
        raise BadGroup(f"{len(body)} bytes, more than max_bytes={max_bytes}; play shorter episodes")
    how = PLAIN if zstd_level is None else ZSTD
    sent = body if zstd_level is None else zstandard.compress(body, zstd_level)
    head = _HEAD.pack(MAGIC, SCHEMA, how, len(body))
    return b"".join((head, _SUM.pack(_checksum(head, sent)), sent))


def group_from_bytes(data: bytes, *, max_bytes: int = MAX_BYTES) -> SAWGroup:
    """The group that `group_to_bytes` was given, bit for bit; its arrays are read-only.

    Raises BadGroup, with the reason, for anything else.
    """
    try:
        found = _DECODER.decode(_body(data, max_bytes))
    except msgspec.DecodeError as error:
        raise BadGroup(f"no msgpack of a group: {error}") from error
    _check_key(found.key)
    items, metrics = tuple(_unpacked(found)), _metrics(found.metrics)
    return SAWGroup(key=found.key, actor=found.actor, items=items, metrics=metrics)


def _body(data: bytes, max_bytes: int) -> bytes:
    """The message's body, uncompressed and as it was sent."""
    if len(data) < _START:
        raise BadGroup(f"truncated: {len(data)} bytes, fewer than the {_START} of a header")
    magic, schema, how, size = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BadGroup(f"not a group: it begins with {magic!r} instead of {MAGIC!r}")
    if schema != SCHEMA:
        raise BadGroup(f"schema {schema}; this version reads {SCHEMA}")
    if max(size, len(data) - _START) > max_bytes:
        raise BadGroup(f"{max(size, len(data))} bytes, more than max_bytes={max_bytes}")
    (checksum,) = _SUM.unpack_from(data, _HEAD.size)
    body = data[_START:]
    if checksum != _checksum(data[: _HEAD.size], body):
        raise BadGroup(f"truncated or damaged: the checksum of {len(data)} bytes is another")
    if how == ZSTD:
        body = _decompressed(body, size)
    elif how != PLAIN:
        raise BadGroup(f"compression {how} is unknown")
    if len(body) != size:
        raise BadGroup(f"the body has {len(body)} bytes instead of {size}")
    return body


def _decompressed(body: bytes, size: int) -> bytes:
    # What a frame says of itself decides what is allocated, so it is asked first.
    try:
        if (claimed := zstandard.frame_content_size(body)) != size:
            raise BadGroup(f"the zstd frame claims {claimed} bytes instead of {size}")
        return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadGroup(f"no zstd frame: {error}") from error


def _checksum(head: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(head))


def _check_key(key: str) -> None:
    if not 0 < len(key) <= MAX_KEY:
        raise BadGroup(f"a key of {len(key)} characters; it must have 1 to {MAX_KEY}")


def _packed(group: SAWGroup) -> _Group:
    items = group.items
    named = [{LOGPROBS: i.behavior_logprobs, VERSIONS: i.versions, **_attached(i)} for i in items]
    names = sorted({name for each in named for name, array in each.items() if array is not None})
    return _Group(
        key=group.key,
        actor=group.actor,
        lengths=_raw([np.array([len(item.input_ids) for item in items])], INT),
        ids=_raw([item.input_ids for item in items], INT),
        mask=np.packbits(_joined([i.action_mask for i in items]), bitorder="little").tobytes(),
        weight=_raw([item.weight for item in items], FLOAT),
        temperatures=_raw([np.array([item.temperature for item in items])], DOUBLE),
        streams={name: _stream(name, named) for name in names},
        groups=[item.group for item in items],
        agents=[item.agent for item in items],
        metrics={
            name: (type(metric).__name__, [float(x) for x in astuple(metric)])
            for name, metric in sorted(group.metrics.items())
        },
    )


def _attached(item: SAWItem) -> dict[str, Array]:
    return {ATTACHED + name: array for name, array in item.attachments.items()}


def _stream(name: str, named: Sequence[Mapping[str, Array | None]]) -> tuple[list[int], bytes]:
    found = [
        (row, array) for row, each in enumerate(named) if (array := each.get(name)) is not None
    ]
    return [row for row, _ in found], _raw([array for _, array in found], _dtype(name))


def _unpacked(found: _Group) -> Iterator[SAWItem]:
    lengths = _array(found.lengths, INT, "lengths")
    rows = len(lengths)
    if not rows:
        raise BadGroup("no row")
    if not rows == len(found.groups) == len(found.agents) or (lengths < 1).any():
        raise BadGroup(f"{len(found.groups)} groups for rows of {lengths.tolist()[:8]} tokens")
    ends = np.cumsum(lengths, dtype=np.int64)
    ids = _sized(found.ids, INT, "input_ids", ends[-1])
    mask = _mask(found.mask, len(ids))
    if mask[ends - lengths].any():
        raise BadGroup("a row must begin with a token that was not sampled")
    if (lowest := int(ids.min())) < 0:
        raise BadGroup(f"a token id is {lowest}")
    weight = _finite(_sized(found.weight, FLOAT, "weight", ends[-1]), "weight")
    temperatures = _finite(_sized(found.temperatures, DOUBLE, "temperature", rows), "temperature")
    if (temperatures <= 0).any():
        raise BadGroup(f"temperature={temperatures.min()} must be greater than 0")
    streams: list[dict[str, Array]] = [{} for _ in range(rows)]
    for name, (members, raw) in found.streams.items():
        for row, array in _rows_of(name, members, raw, lengths):
            streams[row][name] = array
    for row, (start, end) in enumerate(zip((ends - lengths).tolist(), ends.tolist(), strict=True)):
        own = streams[row]
        versions, sampled = own.pop(VERSIONS, None), mask[start:end]
        if versions is not None and (versions[sampled] < 0).any():
            raise BadGroup("versions lacks that of a sampled token")
        yield SAWItem(
            input_ids=ids[start:end],
            action_mask=sampled,
            weight=weight[start:end],
            behavior_logprobs=own.pop(LOGPROBS, None),
            versions=versions,
            temperature=float(temperatures[row]),
            group=found.groups[row],
            agent=found.agents[row],
            attachments={name.removeprefix(ATTACHED): array for name, array in own.items()},
        )


def _rows_of(
    name: str, members: Sequence[int], raw: bytes, lengths: Array
) -> Iterator[tuple[int, Array]]:
    """A stream's values, row by row."""
    if not name.startswith(ATTACHED) and name not in (LOGPROBS, VERSIONS):
        raise BadGroup(f"a stream {name!r} is unknown")
    known = all(0 <= row < len(lengths) for row in members)
    if not known or any(a >= b for a, b in pairwise(members)):
        raise BadGroup(f"{name} is of the rows {members[:8]}, and there are {len(lengths)}")
    ends = np.cumsum(lengths[members], dtype=np.int64).tolist()
    values = _sized(raw, _dtype(name), name, ends[-1] if ends else 0)
    if name != VERSIONS:
        _finite(values, name)
    start = 0
    for row, end in zip(members, ends, strict=True):
        yield row, values[start:end]
        start = end


def _dtype(name: str) -> str:
    return INT if name == VERSIONS else FLOAT


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _raw(arrays: Sequence[Array], dtype: str) -> bytes:
    return np.ascontiguousarray(_joined(arrays), np.dtype(dtype)).tobytes()


def _array(raw: bytes, dtype: str, name: str) -> Array:
    kind = np.dtype(dtype)
    if len(raw) % kind.itemsize:
        raise BadGroup(f"{name} has {len(raw)} bytes, not a multiple of {kind.itemsize}")
    return np.frombuffer(raw, kind)


def _sized(raw: bytes, dtype: str, name: str, size: int) -> Array:
    array = _array(raw, dtype, name)
    if len(array) != size:
        raise BadGroup(f"{name} has {len(array)} values instead of {size}")
    return array


def _finite(array: Array, name: str) -> Array:
    if not np.isfinite(array).all():
        raise BadGroup(f"{name} holds a value that is not finite")
    return array


def _mask(raw: bytes, length: int) -> NDArray[np.bool_]:
    if len(raw) != (length + 7) // 8:
        raise BadGroup(f"action_mask has {len(raw)} bytes for {length} tokens")
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
    if bits[length:].any():
        raise BadGroup(f"action_mask marks tokens after the {length} that there are")
    return bits[:length].view(np.bool_)


def _metrics(found: Mapping[str, tuple[str, list[float]]]) -> Metrics:
    try:
        return {name: KINDS[kind](*numbers) for name, (kind, numbers) in found.items()}
    except (KeyError, TypeError) as error:
        raise BadGroup(f"metrics of an unknown kind: {error}") from error
