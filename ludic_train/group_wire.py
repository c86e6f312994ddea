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
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from ludic_train.errors import BadGroup
from ludic_train.groups import SAWGroup, check_item
from ludic_train.metrics import Metric, Metrics
from ludic_train.saw import SAWItem
from ludic_train.wire import KINDS

MAGIC, SCHEMA = b"LDCG", 1
PLAIN, ZSTD = 0, 1
MAX_BYTES = 64 * 2**20
MAX_KEY = 200
_HEAD, _SUM = struct.Struct("<4sBBI"), struct.Struct("<I")
_START = _HEAD.size + _SUM.size


class _Item(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ids: bytes
    mask: bytes
    weight: bytes
    logprobs: bytes | None
    versions: bytes | None
    temperature: float
    group: str
    agent: str
    attachments: dict[str, bytes]


class _Group(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    key: str
    actor: str
    items: list[_Item]
    metrics: dict[str, tuple[str, list[float]]]


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Group)


def group_to_bytes(
    group: SAWGroup, *, max_bytes: int = MAX_BYTES, zstd_level: int | None = None
) -> bytes:
    """The group as one message, compressed by zstd where a level is given.

    Raises BadGroup for a group that `group_from_bytes` would refuse.
    """
    _check(group)
    metrics = {n: (type(m).__name__, [float(x) for x in astuple(m)]) for n, m in _sorted(group)}
    items = [_packed(item) for item in group.items]
    body = _ENCODER.encode(_Group(group.key, group.actor, items, metrics))
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
    group = SAWGroup(
        key=found.key,
        actor=found.actor,
        items=tuple(_unpacked(item) for item in found.items),
        metrics=_metrics(found.metrics),
    )
    _check(group)
    return group


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


def _check(group: SAWGroup) -> None:
    if not 0 < len(group.key) <= MAX_KEY:
        raise BadGroup(f"a key of {len(group.key)} characters; it must have 1 to {MAX_KEY}")
    if not group.items:
        raise BadGroup("no row")
    for item in group.items:
        check_item(item)


def _sorted(group: SAWGroup) -> list[tuple[str, Metric]]:
    return sorted(group.metrics.items())


def _packed(item: SAWItem) -> _Item:
    return _Item(
        ids=_raw(item.input_ids, "<i4"),
        mask=np.packbits(item.action_mask, bitorder="little").tobytes(),
        weight=_raw(item.weight, "<f4"),
        logprobs=None if item.behavior_logprobs is None else _raw(item.behavior_logprobs, "<f4"),
        versions=None if item.versions is None else _raw(item.versions, "<i4"),
        temperature=float(item.temperature),
        group=item.group,
        agent=item.agent,
        attachments={name: _raw(array, "<f4") for name, array in sorted(item.attachments.items())},
    )


def _unpacked(item: _Item) -> SAWItem:
    ids = _array(item.ids, "<i4", "input_ids")
    return SAWItem(
        input_ids=ids,
        action_mask=_mask(item.mask, len(ids)),
        weight=_array(item.weight, "<f4", "weight"),
        behavior_logprobs=None
        if item.logprobs is None
        else _array(item.logprobs, "<f4", "behavior_logprobs"),
        versions=None if item.versions is None else _array(item.versions, "<i4", "versions"),
        temperature=item.temperature,
        group=item.group,
        agent=item.agent,
        attachments={name: _array(raw, "<f4", name) for name, raw in item.attachments.items()},
    )


def _raw(array: NDArray[Any], dtype: str) -> bytes:
    return np.ascontiguousarray(array, np.dtype(dtype)).tobytes()


def _array(raw: bytes, dtype: str, name: str) -> NDArray[Any]:
    if len(raw) % 4:
        raise BadGroup(f"{name} has {len(raw)} bytes, not a multiple of 4")
    return np.frombuffer(raw, np.dtype(dtype))


def _mask(raw: bytes, length: int) -> NDArray[np.bool_]:
    if len(raw) != (length + 7) // 8:
        raise BadGroup(f"action_mask has {len(raw)} bytes for {length} tokens")
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
    if bits[length:].any():
        raise BadGroup(f"action_mask marks tokens after the {length} that there are")
    return bits[:length].astype(np.bool_)


def _metrics(found: Mapping[str, tuple[str, list[float]]]) -> Metrics:
    try:
        return {name: KINDS[kind](*numbers) for name, (kind, numbers) in found.items()}
    except (KeyError, TypeError) as error:
        raise BadGroup(f"metrics of an unknown kind: {error}") from error
