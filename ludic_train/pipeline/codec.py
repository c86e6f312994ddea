"""Groups as bytes from an untrusted writer: reading them runs nothing and trusts nothing.

    0   4 s  magic "LDCG"        5   u8   compression: 0 none, 1 zstd
    4   u8   schema              6   u32  bytes of the body, uncompressed
                                10   u32  CRC-32 of the 10 bytes before and of all after
    14  the body: msgpack of a `_Group`, arrays as raw little-endian bytes

All numbers are little-endian. `trainer.microbatches` has bytes for ranks of one program, which
share their code and need none of these checks.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import islice

import msgspec
import numpy as np
import zstandard
from numpy.typing import NDArray

from ludic_train.errors import BadGroup
from ludic_train.metrics import KINDS, Metrics
from ludic_train.pipeline.columns import (
    ATTACHED,
    INTEGERS,
    LOGPROBS,
    STEPS,
    VERSIONS,
    Array,
    Columns,
    Spans,
    Stream,
    check,
    columns_of,
    dtype_of,
    items_of,
)
from ludic_train.pipeline.group import RolloutGroup
from ludic_train.types import Trajectory

MAGIC, SCHEMA = b"LDCG", 3
PLAIN, ZSTD = 0, 1
MAX_BYTES = 64 * 2**20
MAX_KEY = 200
_HEAD, _SUM = struct.Struct("<4sBBI"), struct.Struct("<I")
_START = _HEAD.size + _SUM.size
INT, DOUBLE = "<i4", "<f8"
# Forms of a stream's bytes: a value for every token, for every sampled one, or one for all sampled
# tokens of a row. Off the mask the value is then 0, or -1 for integers.
EVERY, SAMPLED, ONE = 0, 1, 2


class _Group(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The columns of a group.

    streams: by name: the rows that have it, which form its bytes have, and the bytes.
    sizes: rows, steps and completions of each trajectory. All that follows it is by trajectory.
    """

    key: str
    actor: str
    lengths: bytes
    ids: bytes
    mask: bytes
    temperatures: bytes
    streams: dict[str, tuple[list[int], int, bytes]]
    sizes: bytes
    rewards: bytes
    parsed: bytes
    completions: bytes
    truncated: list[bool]
    agents: list[str]
    env_ids: list[str]
    tasks: list[str]
    infos: list[dict[str, bool | int | float | str]]
    metrics: dict[str, tuple[str, list[float]]]


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Group)


def group_to_bytes(
    group: RolloutGroup, *, max_bytes: int = MAX_BYTES, zstd_level: int | None = None
) -> bytes:
    """The group as one message, compressed by zstd where a level is given.

    Raises BadGroup for a group that `group_from_bytes` would refuse.
    """
    _check_key(group.key)
    columns = columns_of(group.rows)
    check(columns)
    _check_trajectories(group.trajectories)
    try:
        body = _ENCODER.encode(_packed(group, columns))
    except (OverflowError, UnicodeEncodeError) as error:
        raise BadGroup(f"a number or text that msgpack has no form for: {error}") from error
    if len(body) > max_bytes:
        raise BadGroup(f"{len(body)} bytes, more than max_bytes={max_bytes}; play shorter episodes")
    how = PLAIN if zstd_level is None else ZSTD
    sent = body if zstd_level is None else zstandard.compress(body, zstd_level)
    head = _HEAD.pack(MAGIC, SCHEMA, how, len(body))
    return b"".join((head, _SUM.pack(_checksum(head, sent)), sent))


def group_from_bytes(data: bytes, *, max_bytes: int = MAX_BYTES) -> RolloutGroup:
    """The group that `group_to_bytes` was given, bit for bit; its arrays are not to be changed.

    Raises BadGroup, with the reason, for anything else.
    """
    try:
        found = _DECODER.decode(_body(data, max_bytes))
    except msgspec.DecodeError as error:
        raise BadGroup(f"no msgpack of a group: {error}") from error
    _check_key(found.key)
    columns = _unpacked(found)
    check(columns)
    trajectories = tuple(_trajectories(found, columns))
    _check_trajectories(trajectories)
    return RolloutGroup(
        key=found.key,
        actor=found.actor,
        trajectories=trajectories,
        metrics=_metrics(found.metrics),
    )


def _body(data: bytes, max_bytes: int) -> bytes | memoryview:
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
    # What a frame says of itself decides what is allocated, so it is asked first.
    try:
        if (claimed := zstandard.frame_content_size(body)) != size:
            raise BadGroup(f"the zstd frame claims {claimed} bytes instead of {size}")
        return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadGroup(f"no zstd frame: {error}") from error


def _checksum(head: bytes, body: bytes | memoryview) -> int:
    return zlib.crc32(body, zlib.crc32(head))


def _check_key(key: str) -> None:
    if not 0 < len(key) <= MAX_KEY:
        raise BadGroup(f"a key of {len(key)} characters; it must have 1 to {MAX_KEY}")


def _packed(group: RolloutGroup, columns: Columns) -> _Group:
    trajectories = group.trajectories
    sizes = [(len(t.rows), len(t.rewards), len(t.completions)) for t in trajectories]
    parsed = [trajectory.parsed for trajectory in trajectories]
    return _Group(
        key=group.key,
        actor=group.actor,
        lengths=_raw(columns.spans.lengths, INT),
        ids=_raw(columns.ids, INT),
        mask=np.packbits(columns.spans.mask, bitorder="little").tobytes(),
        temperatures=_raw(columns.temperatures, DOUBLE),
        streams={n: _shrunk(n, stream, columns.spans) for n, stream in columns.streams.items()},
        sizes=_raw(np.array(sizes, np.int32), INT),
        rewards=_raw(np.concatenate([np.zeros(0), *(t.rewards for t in trajectories)]), DOUBLE),
        parsed=np.packbits(
            np.concatenate([np.zeros(0, bool), *parsed]), bitorder="little"
        ).tobytes(),
        completions=_raw(
            np.concatenate([np.zeros((0, 3), np.int32), *(t.completions for t in trajectories)]),
            INT,
        ),
        truncated=[trajectory.truncated for trajectory in trajectories],
        agents=[trajectory.agent for trajectory in trajectories],
        env_ids=[trajectory.env_id for trajectory in trajectories],
        tasks=[trajectory.task for trajectory in trajectories],
        infos=[dict(trajectory.info) for trajectory in trajectories],
        metrics={
            name: (type(metric).__name__, [float(x) for x in astuple(metric)])
            for name, metric in sorted(group.metrics.items())
        },
    )


def _trajectories(found: _Group, columns: Columns) -> Iterator[Trajectory]:
    """The trajectories, their arrays views of the message."""
    lists = (found.truncated, found.agents, found.env_ids, found.tasks, found.infos)
    many = len(found.env_ids)
    if {len(facts) for facts in lists} != {many}:
        raise BadGroup(f"facts of {[len(facts) for facts in lists]} trajectories")
    sizes = _sized(found.sizes, INT, "sizes", 3 * many).reshape(-1, 3)
    if (sizes < 0).any():
        raise BadGroup(f"sizes of trajectories are {sizes.tolist()[:8]}")
    rows, steps, calls = (int(total) for total in sizes.sum(0))
    if rows != len(columns.spans.lengths):
        raise BadGroup(f"the trajectories have {rows} rows, not {len(columns.spans.lengths)}")
    rewards = _sized(found.rewards, DOUBLE, "rewards", steps)
    parsed = _mask(found.parsed, steps, "parsed")
    completions = _sized(found.completions, INT, "completions", 3 * calls).reshape(-1, 3)
    counts = sizes[:, 0].tolist()
    items = items_of(
        columns,
        group=found.key,
        agents=[agent for agent, n in zip(found.agents, counts, strict=True) for _ in range(n)],
        truncated=[cut for cut, n in zip(found.truncated, counts, strict=True) for _ in range(n)],
    )
    step = call = 0
    for number, (own_rows, own_steps, own_calls) in enumerate(sizes.tolist()):
        yield Trajectory(
            rows=tuple(islice(items, own_rows)),
            rewards=rewards[step : step + own_steps],
            parsed=parsed[step : step + own_steps],
            completions=completions[call : call + own_calls],
            env_id=found.env_ids[number],
            agent=found.agents[number],
            group=found.key,
            task=found.tasks[number],
            truncated=found.truncated[number],
            info=found.infos[number],
        )
        step, call = step + own_steps, call + own_calls


def _check_trajectories(trajectories: Sequence[Trajectory]) -> None:
    """Raise BadGroup for rewards or steps that credit could not be assigned to."""
    for trajectory in trajectories:
        steps = len(trajectory.rewards)
        if not np.isfinite(trajectory.rewards).all():
            raise BadGroup(f"the rewards {trajectory.rewards[:8].tolist()} are not finite")
        if len(trajectory.parsed) != steps:
            raise BadGroup(f"{len(trajectory.parsed)} parsed steps of {steps}")
        table = trajectory.completions
        if (table < 0).any() or (table[:, 0] >= steps).any():
            raise BadGroup(f"a completion is of none of the {steps} steps")
        for row in trajectory.rows:
            if row.steps is None or int(row.steps.max()) >= steps:
                raise BadGroup(f"a row has tokens of none of the {steps} steps")


def _shrunk(name: str, stream: Stream, spans: Spans) -> tuple[list[int], int, bytes]:
    """The stream in the smallest form that gives back its very bits."""
    rows, values = stream
    spans, bits = spans.part(rows), values.view(np.int32)
    sampled = bits[spans.mask]
    # Of a row without sampled tokens, nothing is made of what is sent.
    ones = sampled.take(spans.firsts, mode="clip") if len(sampled) else np.zeros(len(rows), INT)
    for form, sent in ((ONE, ones), (SAMPLED, sampled)):
        if (_spread(name, form, sent, spans) == bits).all():
            return list(rows), form, _raw(sent, INT)
    return list(rows), EVERY, _raw(bits, INT)


def _spread(name: str, form: int, sent: Array, spans: Spans) -> Array:
    """The bits of a stream's values, int32, for every token."""
    if form == EVERY:
        return sent
    off_mask = -1 if name in INTEGERS else 0
    if form == SAMPLED:
        whole = np.full(len(spans.mask), off_mask, np.int32)
        whole[spans.mask] = sent
        return whole
    # What np.where would give, in a third of its time: the bits of 0 and -1 are all alike.
    whole = sent.repeat(spans.lengths)
    return whole | ~spans.marks if off_mask else whole & spans.marks


def _unpacked(found: _Group) -> Columns:
    lengths = _array(found.lengths, INT, "lengths")
    tokens: list[int] = lengths.tolist()
    rows = len(tokens)
    if min(tokens, default=1) < 1:
        raise BadGroup(f"rows of {tokens[:8]} tokens")
    ids = _sized(found.ids, INT, "input_ids", sum(tokens))
    spans = Spans(lengths, _mask(found.mask, len(ids), "action_mask"))
    if len(found.streams[STEPS][0] if STEPS in found.streams else ()) != rows:
        raise BadGroup(f"not each of the {rows} rows has its steps")
    return Columns(
        spans=spans,
        ids=ids,
        temperatures=_sized(found.temperatures, DOUBLE, "temperature", rows),
        streams={name: _stream(name, *each, spans) for name, each in found.streams.items()},
    )


def _stream(name: str, rows: list[int], form: int, raw: bytes, spans: Spans) -> Stream:
    if not name.startswith(ATTACHED) and name not in (LOGPROBS, VERSIONS, STEPS):
        raise BadGroup(f"a stream {name!r} is unknown")
    known = range(len(spans.lengths))
    if rows != [*known] and (rows != sorted({*rows}) or not {*rows} <= {*known}):
        raise BadGroup(f"{name} is of the rows {rows[:8]}, and there are {len(known)}")
    spans = spans.part(rows)
    if form not in (EVERY, SAMPLED, ONE):
        raise BadGroup(f"{name} has the unknown form {form}")
    sizes = {EVERY: len(spans.mask), ONE: len(rows)}
    size = sizes[form] if form in sizes else int(np.count_nonzero(spans.mask))
    return rows, _spread(name, form, _sized(raw, INT, name, size), spans).view(dtype_of(name))


def _raw(array: Array, dtype: str) -> bytes:
    return np.ascontiguousarray(array, np.dtype(dtype)).tobytes()


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


def _mask(raw: bytes, length: int, name: str) -> NDArray[np.bool_]:
    if len(raw) != (length + 7) // 8:
        raise BadGroup(f"{name} has {len(raw)} bytes for {length} values")
    if length % 8 and raw[-1] >> length % 8:
        raise BadGroup(f"{name} marks values after the {length} that there are")
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=length, bitorder="little")
    return bits.view(np.bool_)


def _metrics(found: Mapping[str, tuple[str, list[float]]]) -> Metrics:
    try:
        return {name: KINDS[kind](*numbers) for name, (kind, numbers) in found.items()}
    except (KeyError, TypeError) as error:
        raise BadGroup(f"metrics of an unknown kind: {error}") from error
