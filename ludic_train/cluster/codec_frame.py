"""The header of a message and its checksum, around a body that may be compressed."""

from __future__ import annotations

import struct

import xxhash

from ludic_train.errors import BadGroup

MAGIC, SCHEMA = b"LDCG", 8
PLAIN, ZSTD = 0, 1
_HEAD, _SUM = struct.Struct("<4sBBI"), struct.Struct("<Q")
_START = _HEAD.size + _SUM.size


def message_of(body: bytes, zstd_level: int | None) -> bytes:
    """The body with its header, compressed by zstd where a level is given."""
    how = PLAIN if zstd_level is None else ZSTD
    # Imported here: `ludic actor --help` works without the extra 'train'.
    import zstandard

    sent = body if zstd_level is None else zstandard.compress(body, zstd_level)
    head = _HEAD.pack(MAGIC, SCHEMA, how, len(body))
    return b"".join((head, _SUM.pack(_checksum(head, sent)), sent))


def body_of(data: bytes, max_bytes: int) -> bytes | memoryview:
    """The message's body, uncompressed and as it was sent."""
    if len(data) < _START:
        raise BadGroup(f"truncated: {len(data)} bytes, fewer than the {_START} of a header")
    magic, schema, how, size = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BadGroup(f"not a group: it begins with {magic!r} instead of {MAGIC!r}")
    if schema != SCHEMA:
        raise BadGroup(f"schema {schema}; this version reads {SCHEMA}")
    # Both sizes: the claimed one is allocated, the real one is decoded.
    if max(size, len(data) - _START) > max_bytes:
        raise BadGroup(f"{max(size, len(data))} bytes, more than max_bytes={max_bytes}")
    # Against accidents, such as a write that was cut off; a hostile writer can make a right one.
    (checksum,) = _SUM.unpack_from(data, _HEAD.size)
    body: bytes | memoryview = memoryview(data)[_START:]
    if checksum != _checksum(data[: _HEAD.size], body):
        raise BadGroup(f"truncated or damaged: the checksum of {len(data)} bytes is another")
    if how == ZSTD:
        body = _decompressed(body, size)
    elif how != PLAIN:
        raise BadGroup(f"compression {how} is unknown")
    if len(body) != size:
        raise BadGroup(f"the body has {len(body)} bytes instead of {size}")
    return body


def _decompressed(body: bytes | memoryview, size: int) -> bytes:
    """The body of `size` bytes. Raises BadGroup for a frame of any other size."""
    import zstandard

    # The size that a frame claims decides how much is allocated, so it is checked first.
    try:
        if (claimed := zstandard.frame_content_size(body)) != size:
            raise BadGroup(f"the zstd frame claims {claimed} bytes instead of {size}")
        return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadGroup(f"no zstd frame: {error}") from error


def _checksum(head: bytes, body: bytes | memoryview) -> int:
    """XXH3 of the header before the checksum, and of the body as sent."""
    # As sent, so that damage is found before anything is decompressed. XXH3 and not CRC-32, which
    # takes longer than all other checks together.
    found = xxhash.xxh3_64(head)
    found.update(body)
    return found.intdigest()
