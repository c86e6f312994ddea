"""Groups of rollouts as bytes from an untrusted writer: reading them runs and trusts nothing.

    0   4 s  magic "LDCG"        5   u64  XXH3 of the 5 bytes before and of all after
    4   u8   schema             13   msgpack of a `_Group`, arrays as raw little-endian bytes

All numbers are little-endian. The tokens of all rows of a group are one array per stream, and so
are the steps of all its trajectories; a row has views of them.

Reading checks in an order in which nothing is allocated on a writer's claim alone: the length, the
checksum, the types of msgpack, then the lengths of the arrays and their values. Whatever passes can
be filtered, credited and trained on without a check further down; a token id may still exceed a
vocabulary, which only the reader knows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import islice, pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import DTypeLike, NDArray

from ludic_gym.errors import DataError
from ludic_gym.rollout.episode import LARGEST_REWARD
from ludic_gym.sampling import unpacked_masks
from ludic_train.errors import BadGroup
from ludic_train.expert_text import UNKNOWN
from ludic_train.metrics import KINDS, Metric, Metrics
from ludic_train.types import SAWItem, Trajectory

MAGIC, SCHEMA = b"LDCG", 10
HEAD, CHECKSUM = "<4sB", "<Q"
# A group of 64 rollouts of 32,768 tokens has about 17 MB.
MAX_BYTES = 64 * 2**20
MAX_KEY = 200
INT, SHORT, FLOAT, DOUBLE = (np.dtype(name) for name in ("<i4", "<i2", "<f4", "<f8"))

Array = NDArray[Any]
# Fits the int32 of the arrays it goes to; msgspec refuses other numbers while it decodes.
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
# Pairs of a number and the number of tokens in a row that have it.
Runs = list[tuple[Count, Count]]


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
class _Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A row, less its tokens: their number, and the streams that it has.

    masks: as `SAWItem.sampling_mask`, of its sampled tokens; or None.
    experts: layers, k, and int16 [T, layers, k] of a mixture of experts, or None.
    """

    length: Count
    has_logprobs: bool
    has_versions: bool
    masks: bytes | None
    temperature: float
    experts: tuple[Count, Count, bytes] | None


class _Trajectory(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A `Trajectory`, less its steps, and less the group, which is the key of the message."""

    rows: list[_Row]
    num_steps: Count
    num_calls: Count
    truncated: bool
    agent: str
    env_id: str
    task: str
    env_key: str
    info: dict[str, bool | int | float | str]


class _Group(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The body of a message: T tokens of all rows, S steps and C model calls of all trajectories.

    ids: int32 [T]. mask: T bits, lowest first: the tokens that were sampled.
    logprobs: float32, of the sampled tokens of the rows that have some.
    versions, steps: runs of equal numbers over the sampled tokens; `versions` of the rows that have
        some.
    rewards: float64 [S]. parsed: S bytes, 0 or 1. completions: int32 [C, 3], as in `Trajectory`.
    metrics: the kind of each, a name in `KINDS`, and its numbers.
    """

    key: str
    actor: str
    trajectories: list[_Trajectory]
    ids: bytes
    mask: bytes
    logprobs: bytes
    versions: Runs
    steps: Runs
    rewards: bytes
    parsed: bytes
    completions: bytes
    metrics: dict[str, tuple[str, list[float]]]


def group_to_bytes(group: RolloutGroup, *, max_bytes: int = MAX_BYTES) -> bytes:
    """The group as one message. max_bytes: at most, as the reader limits it too.

    Equal groups have equal bytes. Raises BadGroup for a group that `group_from_bytes` would refuse.
    """
    try:
        body = msgspec.msgpack.encode(_packed_group(group))
    except (OverflowError, UnicodeEncodeError) as error:
        raise BadGroup(f"a number or text that msgpack has no form for: {error}") from error
    if len(body) > max_bytes:
        raise BadGroup(f"{len(body)} bytes, more than max_bytes={max_bytes}; play shorter episodes")
    # An actor that sends what no trainer can read should fail itself, with its own traceback.
    _group_of_body(body, vocab_size=None)
    head = struct.pack(HEAD, MAGIC, SCHEMA)
    return head + struct.pack(CHECKSUM, xxhash.xxh3_64_intdigest(head + body)) + body


def group_from_bytes(
    data: bytes, *, max_bytes: int = MAX_BYTES, vocab_size: int | None = None
) -> RolloutGroup:
    """The group that `group_to_bytes` was given, bit for bit; its arrays must not be changed.

    data: from anyone; no bytes run code, or raise another error than BadGroup.
    max_bytes: of the message; the memory that reading takes is a multiple of this.
    vocab_size: token ids from here on are refused; None for any.
    Raises BadGroup, with the reason, for anything else.
    """
    size_of_head = struct.calcsize(HEAD)
    start = size_of_head + struct.calcsize(CHECKSUM)
    if len(data) < start:
        raise BadGroup(f"truncated: {len(data)} bytes, fewer than the {start} of a header")
    if len(data) > max_bytes:
        raise BadGroup(f"{len(data)} bytes, more than max_bytes={max_bytes}")
    magic, schema = struct.unpack_from(HEAD, data)
    if magic != MAGIC:
        raise BadGroup(f"not a group: it begins with {magic!r} instead of {MAGIC!r}")
    if schema != SCHEMA:
        raise BadGroup(f"schema {schema}; this version reads {SCHEMA}")
    # Against accidents, such as a write that was cut off; a hostile writer can make a right one.
    (checksum,) = struct.unpack_from(CHECKSUM, data, size_of_head)
    body = memoryview(data)[start:]
    digest = xxhash.xxh3_64(data[:size_of_head])
    digest.update(body)
    if checksum != digest.intdigest():
        raise BadGroup(f"truncated or damaged: the checksum of {len(data)} bytes is another")
    return _group_of_body(body, vocab_size)


def _packed_group(group: RolloutGroup) -> _Group:
    """The group as it is sent. Raises BadGroup for rows and steps whose lengths disagree."""
    for each in group.trajectories:
        if len(each.parsed) != len(each.rewards):
            raise BadGroup(f"{len(each.parsed)} parsed steps of {len(each.rewards)}")
    trajectories = [
        _Trajectory(
            rows=[_packed_row(row) for row in each.rows],
            num_steps=len(each.rewards),
            num_calls=len(each.completions),
            truncated=each.truncated,
            agent=each.agent,
            env_id=each.env_id,
            task=each.task,
            env_key=each.env_key,
            info=dict(each.info),
        )
        for each in group.trajectories
    ]
    rows = group.rows

    def sampled(streams: Sequence[Array | None], dtype: DTypeLike) -> Array:
        # Off the mask a stream holds no facts: its values there are not sent.
        pairs = zip(rows, streams, strict=True)
        return _joined([each[row.action_mask] for row, each in pairs if each is not None], dtype)

    mask = _joined([row.action_mask for row in rows], np.bool_)
    return _Group(
        key=group.key,
        actor=group.actor,
        trajectories=trajectories,
        ids=_joined([row.input_ids for row in rows], INT).tobytes(),
        mask=np.packbits(mask, bitorder="little").tobytes(),
        logprobs=sampled([row.behavior_logprobs for row in rows], FLOAT).tobytes(),
        versions=_runs(sampled([row.versions for row in rows], INT)),
        steps=_runs(sampled([row.steps for row in rows], INT)),
        rewards=_joined([each.rewards for each in group.trajectories], DOUBLE).tobytes(),
        parsed=_joined([each.parsed for each in group.trajectories], np.bool_).tobytes(),
        completions=_joined([each.completions for each in group.trajectories], INT).tobytes(),
        # Sorted, so that equal groups have equal bytes.
        metrics={
            name: (type(metric).__name__, [float(x) for x in astuple(metric)])
            for name, metric in sorted(group.metrics.items())
        },
    )


def _packed_row(row: SAWItem) -> _Row:
    """The row as it is sent, without its weight. Raises BadGroup for arrays of other lengths."""
    if row.attachments:
        raise BadGroup(f"a row has attachments {[*row.attachments]}: only the trainer adds them")
    logprobs, versions, experts = row.behavior_logprobs, row.versions, row.experts
    arrays = row.action_mask, logprobs, versions, row.steps, experts
    lengths = sorted({len(array) for array in arrays if array is not None})
    if lengths != [len(row.input_ids)] or row.steps is None:
        raise BadGroup(f"a row of {len(row.input_ids)} tokens has arrays of {lengths}, or no steps")
    return _Row(
        length=len(row.input_ids),
        has_logprobs=logprobs is not None,
        has_versions=versions is not None,
        masks=row.sampling_mask,
        temperature=row.temperature,
        experts=None if experts is None else (*experts.shape[1:], experts.astype(SHORT).tobytes()),
    )


def _joined(arrays: Sequence[Array], dtype: DTypeLike) -> Array:
    """The arrays as one; [0] for none."""
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


def _runs(numbers: Array) -> Runs:
    """Runs of equal numbers: [4, 4, 4, 5] is [(4, 3), (5, 1)]."""
    if not len(numbers):
        return []
    bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    return [(int(numbers[start]), end - start) for start, end in pairwise(bounds)]


def _group_of_body(body: bytes | memoryview, vocab_size: int | None) -> RolloutGroup:
    """The group of a body. Raises BadGroup for one that cannot be learned from."""
    try:
        packed = msgspec.msgpack.decode(body, type=_Group)
    # Text that is no UTF-8 is an error of its own to msgspec.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadGroup(f"no msgpack of a group: {error}") from error
    if not 0 < len(packed.key) <= MAX_KEY:
        raise BadGroup(f"a key of {len(packed.key)} characters; it must have 1 to {MAX_KEY}")
    rewards, parsed, completions = _unpacked_steps(packed)
    rows = iter(_unpacked_rows(packed, vocab_size))
    trajectories, step, call = [], 0, 0
    for each in packed.trajectories:
        steps = slice(step, step := step + each.num_steps)
        trajectories.append(
            Trajectory(
                rows=tuple(islice(rows, len(each.rows))),
                rewards=rewards[steps],
                parsed=parsed[steps],
                completions=completions[call : (call := call + each.num_calls)],
                env_id=each.env_id,
                agent=each.agent,
                group=packed.key,
                task=each.task,
                env_key=each.env_key,
                truncated=each.truncated,
                info=each.info,
            )
        )
    try:
        metrics: Metrics = {
            name: KINDS[kind](*numbers) for name, (kind, numbers) in packed.metrics.items()
        }
    except (KeyError, TypeError) as error:
        raise BadGroup(f"metrics of an unknown kind: {error}") from error
    return RolloutGroup(
        key=packed.key, actor=packed.actor, trajectories=tuple(trajectories), metrics=metrics
    )


def _unpacked_steps(packed: _Group) -> tuple[Array, Array, Array]:
    """Rewards, parsed flags and model calls of all trajectories.

    Raises BadGroup for those that credit could not be assigned to.
    """
    num_steps = [each.num_steps for each in packed.trajectories]
    num_calls = [each.num_calls for each in packed.trajectories]
    rewards = _array(packed.rewards, DOUBLE, "rewards")
    if (claimed := sum(num_steps)) != len(rewards):
        raise BadGroup(f"{len(rewards)} rewards for {claimed} steps")
    # The negation, so that a nan is bad too.
    if len(bad := rewards[~(np.abs(rewards) <= LARGEST_REWARD)]):
        shown = bad[:8].tolist()
        raise BadGroup(f"of the rewards, {shown} are not finite, or above {LARGEST_REWARD:g}")
    if len(packed.parsed) != len(rewards):
        raise BadGroup(f"{len(packed.parsed)} parsed steps of {len(rewards)}")
    # Numpy stores booleans as bytes of 0 and 1, and no others may come to it.
    if other := packed.parsed.translate(None, b"\0\1"):
        raise BadGroup(f"a parsed flag is {other[0]}")
    completions = _array(packed.completions, INT, "completions")
    if (numbers := 3 * sum(num_calls)) != len(completions):
        raise BadGroup(f"{len(completions)} numbers of completions instead of {numbers}")
    if (completions < 0).any():
        raise BadGroup(f"a number of a completion is {completions.min()}")
    # Numbers of steps index the rewards and the credit later.
    if (completions[::3] >= np.repeat(np.array(num_steps, int), num_calls)).any():
        raise BadGroup("a completion is of none of the steps of its trajectory")
    return rewards, np.frombuffer(packed.parsed, np.bool_), completions.reshape(-1, 3)


def _unpacked_rows(packed: _Group, vocab_size: int | None) -> list[SAWItem]:
    """All rows, with weight 0. Raises BadGroup."""
    rows = [row for each in packed.trajectories for row in each.rows]
    owners = [each for each in packed.trajectories for _ in each.rows]
    lengths = [row.length for row in rows]
    ids = _array(packed.ids, INT, "input_ids")
    if (claimed := sum(lengths)) != len(ids):
        raise BadGroup(f"{len(ids)} input_ids for rows of {claimed} tokens together")
    mask = _mask(packed.mask, len(ids))
    bounds = np.cumsum([0, *lengths])
    # The first token has no token before it that could predict it, so it has no log-prob to train.
    if not all(lengths) or mask[bounds[:-1]].any():
        raise BadGroup("a row must begin with a token, and with one that was not sampled")
    _check_ids(ids, vocab_size)
    priced = mask & np.repeat(np.array([row.has_logprobs for row in rows], bool), lengths)
    values = _array(packed.logprobs, FLOAT, "behavior_logprobs")
    if len(values) != priced.sum():
        raise BadGroup(f"{len(values)} log-probs for {priced.sum()} tokens")
    if not np.isfinite(values).all():
        raise BadGroup("a log-prob of a sampled token is not finite")
    dated = mask & np.repeat(np.array([row.has_versions for row in rows], bool), lengths)
    logprobs = _spread(values, priced, 0.0, FLOAT)
    versions = _spread(_repeated(packed.versions, int(dated.sum()), "versions"), dated, -1, INT)
    steps = _spread(_repeated(packed.steps, int(mask.sum()), "steps"), mask, -1, INT)
    if (steps >= np.repeat(np.array([each.num_steps for each in owners], int), lengths)).any():
        raise BadGroup("a row has tokens of none of the steps of its rollout")
    weight = _spread(np.zeros(0), np.zeros(max(lengths, default=0), bool), 0.0, FLOAT)
    items = []
    for row, owner, (start, end) in zip(rows, owners, pairwise(bounds.tolist()), strict=True):
        if not 0 < row.temperature < math.inf:
            raise BadGroup(f"temperature={row.temperature} must be finite and greater than 0")
        item = SAWItem(
            input_ids=ids[start:end],
            action_mask=mask[start:end],
            weight=weight[: row.length],
            behavior_logprobs=logprobs[start:end] if row.has_logprobs else None,
            sampling_mask=row.masks,
            versions=versions[start:end] if row.has_versions else None,
            steps=steps[start:end],
            temperature=row.temperature,
            truncated=owner.truncated,
            group=packed.key,
            agent=owner.agent,
            experts=None if row.experts is None else _experts(row.experts, row.length),
        )
        if row.masks is not None:
            try:
                _, masked_ids = unpacked_masks(row.masks, item.input_ids[item.action_mask])
            except DataError as error:
                raise BadGroup(str(error)) from error
            _check_ids(masked_ids, vocab_size)
        items.append(item)
    return items


def _check_ids(ids: Array, vocab_size: int | None) -> None:
    """Raise BadGroup for token ids that no model, or not this one, has."""
    if (ids < 0).any():
        raise BadGroup(f"a token id is {ids.min()}")
    # One outside the vocabulary would end the trainer in a kernel, without a name.
    if vocab_size is not None and (ids >= vocab_size).any():
        raise BadGroup(f"a token id is {ids.max()}; the model has {vocab_size}")


def _array(raw: bytes, dtype: np.dtype[Any], name: str) -> Array:
    """The bytes as numbers, without a copy; read-only, like the bytes."""
    if len(raw) % dtype.itemsize:
        raise BadGroup(f"{name} has {len(raw)} bytes, not a multiple of {dtype.itemsize}")
    return np.frombuffer(raw, dtype)


def _mask(raw: bytes, length: int) -> NDArray[np.bool_]:
    """The first `length` bits as booleans. Raises BadGroup where the bytes have more, or fewer."""
    if len(raw) != (length + 7) // 8:
        raise BadGroup(f"action_mask has {len(raw)} bytes for {length} tokens")
    # Else two messages could be the same group, and a token after the end would be lost silently.
    if length % 8 and raw[-1] >> length % 8:
        raise BadGroup(f"action_mask marks tokens after the {length} that there are")
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=length, bitorder="little")
    mask = bits.astype(np.bool_)
    mask.setflags(write=False)
    return mask


def _repeated(runs: Runs, sampled: int, name: str) -> Array:
    """Values of the sampled tokens, [M]."""
    # Before anything is allocated: a few bytes can claim runs of 2**31 tokens.
    if (claimed := sum(length for _, length in runs)) != sampled:
        raise BadGroup(f"{name} has {claimed} values for {sampled} sampled tokens")
    numbers, lengths = np.array(runs, INT).reshape(-1, 2).T
    return numbers.repeat(lengths)


def _spread(values: Array, where: NDArray[np.bool_], off: float, dtype: DTypeLike) -> Array:
    """A read-only stream [T] that has the values where the mask is True, and `off` elsewhere."""
    stream = np.full(len(where), off, dtype)
    stream[where] = values
    stream.setflags(write=False)
    return stream


def _experts(packed: tuple[int, int, bytes], length: int) -> Array:
    """Experts [T, layers, k]. Raises BadGroup for another number of them, or a negative one."""
    layers, k, raw = packed
    values = _array(raw, SHORT, "experts")
    if not values.size or values.size != length * layers * k:
        raise BadGroup(f"{values.size} experts for {length} tokens of {layers} layers and {k} each")
    if values.min() < UNKNOWN:
        raise BadGroup(f"an expert is {values.min()}")
    return values.reshape(length, layers, k)
