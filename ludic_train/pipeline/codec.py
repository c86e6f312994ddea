"""Groups of rollouts as bytes from an untrusted writer: reading them runs and trusts nothing.

    0   4 s  magic "LDCG"        5   u8   compression: 0 none, 1 zstd
    4   u8   schema              6   u32  bytes of the body, uncompressed
                                10   u32  CRC-32 of the 10 bytes before and of all after
    14  the body: msgpack of a `_Group`, arrays as raw little-endian bytes

All numbers are little-endian. `trainer.microbatches` has bytes for ranks of one program, which
share their code and need none of these checks.

Reading checks in an order in which nothing is allocated on a writer's claim alone: the lengths of
the header, the checksum, the size that zstd claims, the types of msgpack, then per row the lengths
of its arrays, and for the whole group the values. Whatever passes can be filtered, credited and
trained on without a check further down; a token id may still exceed a vocabulary, which only the
reader knows.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

import msgspec
import numpy as np

from ludic_gym.errors import DataError
from ludic_gym.rollout.episode import LARGEST_REWARD
from ludic_gym.sampling_masks import unpacked_masks
from ludic_train.errors import BadGroup
from ludic_train.expert_text import UNKNOWN
from ludic_train.metrics import KINDS, Metric, Metrics
from ludic_train.pipeline.codec_arrays import (
    Array,
    Count,
    Runs,
    array_of,
    bits_of,
    repeated,
    runs_of,
    spread,
)
from ludic_train.types import SAWItem, Trajectory

MAGIC, SCHEMA = b"LDCG", 5
PLAIN, ZSTD = 0, 1
# A group of 64 rollouts of 32,768 tokens has about 17 MB.
MAX_BYTES = 64 * 2**20
MAX_KEY = 200
_HEAD, _SUM = struct.Struct("<4sBBI"), struct.Struct("<I")
_START = _HEAD.size + _SUM.size
INT, SHORT, FLOAT = "<i4", "<i2", "<f4"


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


# Sequences and not maps: the names of the fields would be longer than a short row.
class _Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A row of T tokens, M of which were sampled.

    ids: int32 [T]. mask: T bits, lowest first. logprobs: float32 [M], or None.
    masks: as `SAWItem.sampling_mask`, of the M tokens; or None.
    versions, steps: runs of equal numbers over the M tokens, since a whole call has the same.
    temperature: of sampling, finite and greater than 0.
    experts: layers, k, and int16 [T, layers, k] of a mixture of experts, or None.
    """

    ids: bytes
    mask: bytes
    logprobs: bytes | None
    masks: bytes | None
    versions: Runs | None
    steps: Runs
    temperature: float
    experts: tuple[Count, Count, bytes] | None


class _Trajectory(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A `Trajectory`, less the group, which is the key of the message.

    rewards, parsed: one per step. completions: step, sampled tokens, and 1 if cut off, per call.
    """

    rows: list[_Row]
    rewards: list[float]
    parsed: list[bool]
    completions: list[tuple[Count, Count, Count]]
    truncated: bool
    agent: str
    env_id: str
    task: str
    info: dict[str, bool | int | float | str]


class _Group(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The body of a message. metrics: the kind of each, a name in `KINDS`, and its numbers."""

    key: str
    actor: str
    trajectories: list[_Trajectory]
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
    try:
        body = _ENCODER.encode(_Group(group.key, group.actor, trajectories, metrics))
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
    """CRC-32 of the header before the checksum, and of the body as sent."""
    # As sent, so that damage is found before anything is decompressed.
    return zlib.crc32(body, zlib.crc32(head))


def _packed(trajectory: Trajectory) -> _Trajectory:
    """The trajectory as it is sent. Raises BadGroup for rows that cannot be."""
    return _Trajectory(
        rows=[_packed_row(row) for row in trajectory.rows],
        rewards=trajectory.rewards.tolist(),
        parsed=trajectory.parsed.tolist(),
        completions=trajectory.completions.tolist(),
        truncated=trajectory.truncated,
        agent=trajectory.agent,
        env_id=trajectory.env_id,
        task=trajectory.task,
        info=dict(trajectory.info),
    )


def _packed_row(row: SAWItem) -> _Row:
    """The row as it is sent, without its weight. Raises BadGroup for arrays of other lengths."""
    if row.attachments:
        raise BadGroup(f"a row has attachments {[*row.attachments]}: only the trainer adds them")
    arrays = row.action_mask, row.behavior_logprobs, row.versions, row.steps, row.experts
    lengths = sorted({len(array) for array in arrays if array is not None})
    if lengths != [len(row.input_ids)] or row.steps is None:
        raise BadGroup(f"a row of {len(row.input_ids)} tokens has arrays of {lengths}, or no steps")
    mask, logprobs, versions, e = row.action_mask, row.behavior_logprobs, row.versions, row.experts
    return _Row(
        ids=row.input_ids.astype(INT).tobytes(),
        mask=np.packbits(mask, bitorder="little").tobytes(),
        # Off the mask a stream holds no facts: its values there are not sent.
        logprobs=None if logprobs is None else logprobs[mask].astype(FLOAT).tobytes(),
        masks=row.sampling_mask,
        versions=None if versions is None else runs_of(versions[mask]),
        steps=runs_of(row.steps[mask]),
        temperature=row.temperature,
        experts=None if e is None else (*e.shape[1:], e.astype(SHORT).tobytes()),
    )


def _unpacked(body: bytes | memoryview) -> RolloutGroup:
    """The group of a body. Raises BadGroup for one that cannot be learned from."""
    try:
        found = _DECODER.decode(body)
    # Text that is no UTF-8 is an error of its own to msgspec.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadGroup(f"no msgpack of a group: {error}") from error
    if not 0 < len(found.key) <= MAX_KEY:
        raise BadGroup(f"a key of {len(found.key)} characters; it must have 1 to {MAX_KEY}")
    trajectories = tuple(_trajectory(each, found.key) for each in found.trajectories)
    metrics = _metrics(found.metrics)
    group = RolloutGroup(
        key=found.key, actor=found.actor, trajectories=trajectories, metrics=metrics
    )
    _check_values(group.rows)
    return group


def _trajectory(found: _Trajectory, key: str) -> Trajectory:
    """The trajectory. Raises BadGroup for one that credit could not be assigned to."""
    steps = len(found.rewards)
    if not all(abs(reward) <= LARGEST_REWARD for reward in found.rewards):
        raise BadGroup(
            f"of the rewards {found.rewards[:8]}, one is not finite, or above {LARGEST_REWARD:g}"
        )
    if len(found.parsed) != steps:
        raise BadGroup(f"{len(found.parsed)} parsed steps of {steps}")
    # Numbers of steps index the rewards and the credit later; Count has refused negative ones.
    if any(step >= steps for step, _, _ in found.completions):
        raise BadGroup(f"a completion is of none of the {steps} steps")
    if any(step >= steps for row in found.rows for step, _ in row.steps):
        raise BadGroup(f"a row has tokens of none of the {steps} steps")
    return Trajectory(
        rows=tuple(_row(row, found, key) for row in found.rows),
        rewards=np.array(found.rewards, np.float64),
        parsed=np.array(found.parsed, np.bool_),
        completions=np.array(found.completions, np.int32).reshape(-1, 3),
        env_id=found.env_id,
        agent=found.agent,
        group=key,
        task=found.task,
        truncated=found.truncated,
        info=found.info,
    )


def _row(found: _Row, of: _Trajectory, key: str) -> SAWItem:
    """The row, with weight 0. Raises BadGroup for one that cannot be learned from.

    The values of its arrays are checked with those of all rows, in `_check_values`.
    """
    ids = array_of(found.ids, INT, "input_ids")
    mask = bits_of(found.mask, len(ids))
    # The first token has no token before it that could predict it, so it has no log-prob to train.
    if not len(ids) or mask[0]:
        raise BadGroup(f"a row of {len(ids)} tokens must begin with one that was not sampled")
    if not 0 < found.temperature < math.inf:
        raise BadGroup(f"temperature={found.temperature} must be finite and greater than 0")
    sampled = int(np.count_nonzero(mask))
    logprobs = versions = None
    if found.logprobs is not None:
        values = array_of(found.logprobs, FLOAT, "behavior_logprobs")
        if len(values) != sampled:
            raise BadGroup(f"{len(values)} log-probs for {sampled} tokens")
        logprobs = spread(values, mask, 0, np.float32)
    if found.versions is not None:
        versions = spread(repeated(found.versions, sampled, "versions"), mask, -1, np.int32)
    return SAWItem(
        input_ids=ids,
        action_mask=mask,
        weight=np.zeros(len(ids), np.float32),
        behavior_logprobs=logprobs,
        sampling_mask=found.masks,
        versions=versions,
        steps=spread(repeated(found.steps, sampled, "steps"), mask, -1, np.int32),
        temperature=found.temperature,
        truncated=of.truncated,
        group=key,
        agent=of.agent,
        experts=None if found.experts is None else _experts(found.experts, len(ids)),
    )


def _experts(found: tuple[int, int, bytes], length: int) -> Array:
    """Experts [T, layers, k]. Raises BadGroup for another number of them, or a negative one."""
    layers, k, raw = found
    values = array_of(raw, SHORT, "experts")
    if not values.size or values.size != length * layers * k:
        raise BadGroup(f"{values.size} experts for {length} tokens of {layers} layers and {k} each")
    if values.min() < UNKNOWN:
        raise BadGroup(f"an expert is {values.min()}")
    return values.reshape(length, layers, k)


def _check_values(rows: Sequence[SAWItem]) -> None:
    """Raise BadGroup for a negative token id, a log-prob that is not finite, or a wrong mask."""
    # Once for the group: a call of numpy per row costs more than the tokens of a short row.
    lowest = np.concatenate([row.input_ids for row in rows]).min() if rows else 0
    if lowest < 0:
        raise BadGroup(f"a token id is {lowest}")
    logprobs = [row.behavior_logprobs for row in rows if row.behavior_logprobs is not None]
    if logprobs and not np.isfinite(np.concatenate(logprobs)).all():
        raise BadGroup("a log-prob of a sampled token is not finite")
    try:
        for row in rows:
            if row.sampling_mask is not None:
                unpacked_masks(row.sampling_mask, row.input_ids[row.action_mask])
    except DataError as error:
        raise BadGroup(str(error)) from error


def _metrics(found: Mapping[str, tuple[str, list[float]]]) -> Metrics:
    """The metrics. Raises BadGroup for an unknown kind, or another number of numbers."""
    try:
        return {name: KINDS[kind](*numbers) for name, (kind, numbers) in found.items()}
    except (KeyError, TypeError) as error:
        raise BadGroup(f"metrics of an unknown kind: {error}") from error
