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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import partial

import msgspec

from ludic_train.cluster.codec_arrays import Count
from ludic_train.cluster.codec_frame import body_of, message_of
from ludic_train.cluster.codec_rows import (
    Bounds,
    Row,
    Streams,
    Tokens,
    bounds_of_each,
    experts_of,
    joined_tokens,
    packed_row,
    packed_tokens,
    streams_of,
    with_masks,
)
from ludic_train.cluster.codec_steps import StepArrays, Steps, joined_steps, packed_steps, steps_of
from ludic_train.errors import BadGroup
from ludic_train.metrics import KINDS, Metric, Metrics
from ludic_train.types import SAWItem, Trajectory

# A group of 64 rollouts of 32,768 tokens has about 17 MB.
MAX_BYTES = 64 * 2**20
MAX_KEY = 200
# Of groups that are checked together: twice as much at a time was slower. With fewer groups than
# that, joining them costs what it saves.
TOGETHER_BYTES, TOGETHER_GROUPS = 2**17, 4


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


Bounded = tuple[RolloutGroup, Bounds]


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
    return message_of(body, zstd_level)


def group_from_bytes(data: bytes, *, max_bytes: int = MAX_BYTES) -> RolloutGroup:
    """The group that `group_to_bytes` was given, bit for bit; its arrays must not be changed.

    data: from anyone; no bytes run code, or raise another error than BadGroup.
    max_bytes: of the message, and of the body that it claims to hold; the memory that reading
        takes is a multiple of this.
    Raises BadGroup, with the reason, for anything else.
    """
    return bounded_group_from_bytes(data, max_bytes=max_bytes)[0]


def bounded_group_from_bytes(data: bytes, *, max_bytes: int = MAX_BYTES) -> Bounded:
    """As `group_from_bytes`, with the bounds of the tokens."""
    return _unpacked(body_of(data, max_bytes))


def group_readers(messages: Iterable[bytes]) -> Iterator[Callable[[], Bounded]]:
    """For each message in order a call that does what `bounded_group_from_bytes` does with it.

    Small groups are checked several at a time, since a call of numpy costs more than their tokens;
    where one of them is bad, each is checked alone by its call. The arrays of groups that were
    checked together are views of the same memory.
    """
    batch: list[bytes] = []
    size = 0
    for data in messages:
        if batch and size + len(data) > TOGETHER_BYTES:
            yield from _readers(batch)
            batch, size = [], 0
        batch.append(data)
        size += len(data)
    yield from _readers(batch)


def _readers(messages: Sequence[bytes]) -> list[Callable[[], Bounded]]:
    """Calls that give the groups of a batch."""
    # A group alone is decoded by its call: it may be discarded before that.
    calls: list[Callable[[], Bounded]] = [partial(bounded_group_from_bytes, m) for m in messages]
    if len(messages) < TOGETHER_GROUPS:
        return calls
    found: dict[int, _Group] = {}
    left = TOGETHER_BYTES
    for at, data in enumerate(messages):
        # One that is damaged, or longer once it is decompressed, is left to its own call.
        with suppress(BadGroup):
            body = body_of(data, left)
            found[at] = _decoded(body)
            left -= len(body)
            calls[at] = partial(_alone, found[at])
    groups = _together([*found.values()]) if found else None
    for at, group in zip(found, groups or (), strict=False):
        calls[at] = partial(_given, group)
    return calls


def _given(group: Bounded) -> Bounded:
    """The group, which was read already."""
    return group


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


def _unpacked(body: bytes | memoryview) -> Bounded:
    """The group of a body, and its bounds. Raises BadGroup for one that cannot be learned from."""
    return _alone(_decoded(body))


def _decoded(body: bytes | memoryview) -> _Group:
    """The body's parts, of the right types. Raises BadGroup."""
    try:
        found = _DECODER.decode(body)
    # Text that is no UTF-8 is an error of its own to msgspec.
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadGroup(f"no msgpack of a group: {error}") from error
    if not 0 < len(found.key) <= MAX_KEY:
        raise BadGroup(f"a key of {len(found.key)} characters; it must have 1 to {MAX_KEY}")
    return found


def _alone(found: _Group) -> Bounded:
    """The group and its bounds. Raises BadGroup for one that cannot be learned from."""
    _, bounds, trajectories = _checked([found], found.tokens, found.steps)
    return _made(found, trajectories, bounds)


def _together(found: Sequence[_Group]) -> list[Bounded] | None:
    """The groups, checked as if they were one; None if one of them is bad, or unlike the others."""
    rows = [[row for each in group.trajectories for row in each.rows] for group in found]
    tokens = joined_tokens([group.tokens for group in found], rows)
    calls = [[(each.num_steps, each.num_calls) for each in group.trajectories] for group in found]
    steps = joined_steps([group.steps for group in found], calls)
    if tokens is None or steps is None:
        return None
    try:
        streams, _, trajectories = _checked(found, tokens, steps)
        bounds = bounds_of_each([group.tokens for group in found], rows, streams)
        made, start = [], 0
        for group, each in zip(found, bounds, strict=True):
            end = start + len(group.trajectories)
            made.append(_made(group, trajectories[start:end], each))
            start = end
    except BadGroup:
        return None
    return made


def _made(found: _Group, trajectories: Sequence[Trajectory], bounds: Bounds) -> Bounded:
    """The group of these trajectories, and its bounds with its sampling masks. Raises BadGroup."""
    if masked := [r for each in trajectories for r in each.rows if r.sampling_mask is not None]:
        bounds = with_masks(bounds, masked)
    metrics = _metrics(found.metrics)
    group = RolloutGroup(
        key=found.key, actor=found.actor, trajectories=tuple(trajectories), metrics=metrics
    )
    return group, bounds


def _checked(
    found: Sequence[_Group], tokens: Tokens, steps: Steps
) -> tuple[Streams, Bounds, list[Trajectory]]:
    """The trajectories of all groups, with views of arrays of all of them. Raises BadGroup."""
    packed = [each for group in found for each in group.trajectories]
    arrays = steps_of(steps, [t.num_steps for t in packed], [t.num_calls for t in packed])
    rows = [row for each in packed for row in each.rows]
    num_steps = [each.num_steps for each in packed for _ in each.rows]
    streams, bounds = streams_of(tokens, rows, num_steps)
    return streams, bounds, _trajectories(found, _rows(found, streams), arrays)


def _trajectories(
    found: Sequence[_Group], made: Sequence[SAWItem], arrays: StepArrays
) -> list[Trajectory]:
    """The trajectories of all groups. made: all of their rows."""
    rewards, parsed, completions = arrays.rewards, arrays.parsed, arrays.completions
    trajectories, row, step, call = [], 0, 0, 0
    for key, each in [(group.key, each) for group in found for each in group.trajectories]:
        # Each view is made by one slice: half of the time of this loop.
        of_steps = slice(step, step := step + each.num_steps)
        trajectories.append(
            Trajectory(
                rows=tuple(made[row : (row := row + len(each.rows))]),
                rewards=rewards[of_steps],
                parsed=parsed[of_steps],
                completions=completions[call : (call := call + each.num_calls)],
                env_id=each.env_id,
                agent=each.agent,
                group=key,
                task=each.task,
                env_key=each.env_key,
                truncated=each.truncated,
                info=each.info,
            )
        )
    return trajectories


def _rows(found: Sequence[_Group], streams: Streams) -> list[SAWItem]:
    """All rows, with weight 0. Raises BadGroup for wrong experts."""
    # Locals, which are looked up eight times as fast as fields.
    ids, mask, weight = streams.input_ids, streams.action_mask, streams.weight
    logprobs, versions, steps = streams.behavior_logprobs, streams.versions, streams.steps
    rows, start, weights = [], 0, weight
    for key, of in [(group.key, each) for group in found for each in group.trajectories]:
        for row in of.rows:
            length, experts = row.length, row.experts
            at = slice(start, start := start + length)
            # Often all rows are as long: a view takes a tenth of a row's time.
            weights = weights if len(weights) == length else weight[:length]
            rows.append(
                SAWItem(
                    input_ids=ids[at],
                    action_mask=mask[at],
                    weight=weights,
                    behavior_logprobs=logprobs[at] if row.has_logprobs else None,
                    sampling_mask=row.masks,
                    versions=versions[at] if row.has_versions else None,
                    steps=steps[at],
                    temperature=row.temperature,
                    truncated=of.truncated,
                    group=key,
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
