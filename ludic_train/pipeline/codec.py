"""Groups of rollouts as bytes from an untrusted writer: reading them runs and trusts nothing.

    0   4 s  magic "LDCG"        5   u8   compression: 0 none, 1 zstd
    4   u8   schema              6   u32  bytes of the body, uncompressed
                                10   u64  XXH3 of the 10 bytes before and of all after
    18  the body: msgpack of a `_Group`, arrays as raw little-endian bytes

All numbers are little-endian. `trainer.microbatches` has bytes for ranks of one program, which
share their code and need none of these checks.

Reading checks in an order in which nothing is allocated on a writer's claim alone: the lengths of
the header, the checksum, the size that zstd claims, the types of msgpack, then the lengths of the
arrays and their values. Whatever passes can be filtered, credited and trained on without a check
further down; a token id may still exceed a vocabulary, which only the reader knows.

The tokens of all rows of a group are one array per stream, and so are the steps of all its
trajectories, since a call of numpy per row costs more than the tokens of a short row. A row has
views of them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

import msgspec
import xxhash

from ludic_train.errors import BadGroup
from ludic_train.metrics import KINDS, Metric, Metrics
from ludic_train.pipeline.codec_arrays import Count
from ludic_train.pipeline.codec_rows import (
    Bounds,
    Row,
    Streams,
    Tokens,
    experts_of,
    packed_row,
    packed_tokens,
    streams_of,
    with_masks,
)
from ludic_train.pipeline.codec_steps import Steps, packed_steps, steps_of
from ludic_train.types import SAWItem, Trajectory

MAGIC, SCHEMA = b"LDCG", 8
PLAIN, ZSTD = 0, 1
# A group of 64 rollouts of 32,768 tokens has about 17 MB.
MAX_BYTES = 64 * 2**20
MAX_KEY = 200
_HEAD, _SUM = struct.Struct("<4sBBI"), struct.Struct("<Q")
_START = _HEAD.size + _SUM.size


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """Rollouts of one task, in tokens and without credit.

        group = RolloutGroup(key="a:1", trajectories=tuple(trajectories_from(episodes, 8)))
        await queue.push(group.key, group_to_bytes(group))

    key: unique among all groups of all actors; pushed twice, a group is trained on once.
    trajectories: all have `group` equal to the key; their rows have no attachments.
    actor: name of the actor that played it.
    metrics: metrics of its episodes, those that left no trajectory included.
    """

    key: str
    trajectories: tuple[Trajectory, ...] = field(repr=False)
    actor: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def rows(self) -> list[SAWItem]:
        """The rows of all trajectories."""
        return [row for trajectory in self.trajectories for row in trajectory.rows]


# Sequences and not maps: the names of the fields would be longer than their values.
class _Trajectory(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """A `Trajectory`, less its steps, and less the group, which is the key of the message."""

    rows: list[Row]
    num_steps: Count
    num_calls: Count
    truncated: bool
    agent: str
    env_id: str
    task: str
    env_key: str
    info: dict[str, bool | int | float | str]


class _Group(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The body of a message. metrics: the kind of each, a name in `KINDS`, and its numbers."""

    key: str
    actor: str
    trajectories: list[_Trajectory]
    tokens: Tokens
    steps: Steps
    metrics: dict[str, tuple[str, list[float]]]


# Made once, because making one compiles its types.
_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Group)


def group_to_bytes(
    group: RolloutGroup, *, max_bytes: int = MAX_BYTES, zstd_level: int | None = None
) -> bytes:
    """The group as one message, compressed by zstd where a level is given.

    max_bytes: of the body before compression, as the reader limits it too.
    zstd_level: 1 (fast) to 22 (small); None sends the body as it is.
    Equal groups have equal bytes. Raises BadGroup for a group that `group_from_bytes` would refuse.
    """
    # Sorted, so that equal groups have equal bytes.
    metrics = {
        name: (type(metric).__name__, [float(x) for x in astuple(metric)])
        for name, metric in sorted(group.metrics.items())
    }
    trajectories = [_packed(trajectory) for trajectory in group.trajectories]
    tokens, steps = packed_tokens(group.rows), packed_steps(group.trajectories)
    try:
        body = _ENCODER.encode(_Group(group.key, group.actor, trajectories, tokens, steps, metrics))
    except (OverflowError, UnicodeEncodeError) as error:
        raise BadGroup(f"a number or text that msgpack has no form for: {error}") from error
    if len(body) > max_bytes:
        raise BadGroup(f"{len(body)} bytes, more than max_bytes={max_bytes}; play shorter episodes")
    # An actor that sends what no trainer can read should fail itself, with its own traceback.
    _unpacked(body)
    how = PLAIN if zstd_level is None else ZSTD
    # Imported here: `ludic actor --help` works without the extra 'train'.
    import zstandard

    sent = body if zstd_level is None else zstandard.compress(body, zstd_level)
    head = _HEAD.pack(MAGIC, SCHEMA, how, len(body))
    return b"".join((head, _SUM.pack(_checksum(head, sent)), sent))


def group_from_bytes(data: bytes, *, max_bytes: int = MAX_BYTES) -> RolloutGroup:
    """The group that `group_to_bytes` was given, bit for bit; its arrays must not be changed.

    data: from anyone; no bytes run code, or raise another error than BadGroup.
    max_bytes: of the message, and of the body that it claims to hold; the memory that reading
        takes is a multiple of this.
    Raises BadGroup, with the reason, for anything else.
    """
    return bounded_group_from_bytes(data, max_bytes=max_bytes)[0]


def bounded_group_from_bytes(
    data: bytes, *, max_bytes: int = MAX_BYTES
) -> tuple[RolloutGroup, Bounds]:
    """As `group_from_bytes`, with the bounds of the tokens."""
    return _unpacked(_body(data, max_bytes))


def _body(data: bytes, max_bytes: int) -> bytes | memoryview:
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


def _packed(trajectory: Trajectory) -> _Trajectory:
    """The trajectory as it is sent. Raises BadGroup for rows that cannot be."""
    return _Trajectory(
        rows=[packed_row(row) for row in trajectory.rows],
        num_steps=len(trajectory.rewards),
        num_calls=len(trajectory.completions),
        truncated=trajectory.truncated,
        agent=trajectory.agent,
        env_id=trajectory.env_id,
        task=trajectory.task,
        env_key=trajectory.env_key,
        info=dict(trajectory.info),
    )


def _unpacked(body: bytes | memoryview) -> tuple[RolloutGroup, Bounds]:
    """The group of a body, and its bounds. Raises BadGroup for one that cannot be learned from."""
    try:
        found = _DECODER.decode(body)
    # Text that is no UTF-8 is an error of its own to msgspec.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadGroup(f"no msgpack of a group: {error}") from error
    if not 0 < len(found.key) <= MAX_KEY:
        raise BadGroup(f"a key of {len(found.key)} characters; it must have 1 to {MAX_KEY}")
    trajectories, bounds = _trajectories(found)
    metrics = _metrics(found.metrics)
    group = RolloutGroup(
        key=found.key, actor=found.actor, trajectories=trajectories, metrics=metrics
    )
    return group, bounds


def _trajectories(found: _Group) -> tuple[tuple[Trajectory, ...], Bounds]:
    """The trajectories, with views of arrays of the whole group."""
    packed = found.trajectories
    steps = steps_of(found.steps, [t.num_steps for t in packed], [t.num_calls for t in packed])
    rows = [row for each in packed for row in each.rows]
    num_steps = [each.num_steps for each in packed for _ in each.rows]
    streams, bounds = streams_of(found.tokens, rows, num_steps)
    made = _rows(found, streams)
    trajectories, row, step, call = [], 0, 0, 0
    for each in packed:
        # Each view is made by one slice: half of the time of this loop.
        of_steps = slice(step, step := step + each.num_steps)
        trajectories.append(
            Trajectory(
                rows=tuple(made[row : (row := row + len(each.rows))]),
                rewards=steps.rewards[of_steps],
                parsed=steps.parsed[of_steps],
                completions=steps.completions[call : (call := call + each.num_calls)],
                env_id=each.env_id,
                agent=each.agent,
                group=found.key,
                task=each.task,
                env_key=each.env_key,
                truncated=each.truncated,
                info=each.info,
            )
        )
    if masked := [row for row in made if row.sampling_mask is not None]:
        bounds = with_masks(bounds, masked)
    return tuple(trajectories), bounds


def _rows(found: _Group, streams: Streams) -> list[SAWItem]:
    """All rows, with weight 0. Raises BadGroup for wrong experts."""
    # Locals, which are looked up eight times as fast as fields.
    ids, mask, weight = streams.input_ids, streams.action_mask, streams.weight
    logprobs, versions, steps = streams.behavior_logprobs, streams.versions, streams.steps
    rows, start = [], 0
    for of in found.trajectories:
        for row in of.rows:
            length, experts = row.length, row.experts
            at = slice(start, start := start + length)
            rows.append(
                SAWItem(
                    input_ids=ids[at],
                    action_mask=mask[at],
                    weight=weight[:length],
                    behavior_logprobs=logprobs[at] if row.has_logprobs else None,
                    sampling_mask=row.masks,
                    versions=versions[at] if row.has_versions else None,
                    steps=steps[at],
                    temperature=row.temperature,
                    truncated=of.truncated,
                    group=found.key,
                    agent=of.agent,
                    experts=None if experts is None else experts_of(experts, length),
                )
            )
    return rows


def _metrics(found: Mapping[str, tuple[str, list[float]]]) -> Metrics:
    """The metrics. Raises BadGroup for an unknown kind, or another number of numbers."""
    try:
        return {name: KINDS[kind](*numbers) for name, (kind, numbers) in found.items()}
    except (KeyError, TypeError) as error:
        raise BadGroup(f"metrics of an unknown kind: {error}") from error
