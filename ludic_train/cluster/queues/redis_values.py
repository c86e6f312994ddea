"""Values of a queue in Redis, from the bytes of its responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ludic_train.cluster.queues.base import DeadLetter, Entry, TrainerReport
from ludic_train.errors import QueueError

TRAINER = tuple(TrainerReport.__dataclass_fields__)


def entry(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """An entry of the stream; an empty key and no data where a stranger left out the fields."""
    key = fields.get(b"k", b"").decode(errors="replace")
    return Entry(id=entry_id.decode(), key=key, data=fields.get(b"d", b""))


def dead_letter(fields: Mapping[bytes, bytes]) -> DeadLetter:
    """A dead letter from its entry."""
    named = {name: fields[name.encode()].decode(errors="replace") for name in ("id", "key")}
    reason = fields[b"reason"].decode(errors="replace")
    return DeadLetter(**named, reason=reason, size=int(fields[b"size"]), head=fields[b"head"])


def trainer_report(values: Sequence[str | bytes]) -> TrainerReport:
    """The report from the values of its fields, the levels last."""
    *numbers, levels = values
    found: dict[str, Any] = dict(
        zip(TRAINER, (int(number) if number else None for number in numbers), strict=False)
    )
    text = levels.decode() if isinstance(levels, bytes) else levels
    return TrainerReport(**{**found, "levels": text})


def texts(found: Mapping[bytes, bytes]) -> dict[str, str]:
    """A hash as text."""
    return {k.decode(errors="replace"): v.decode(errors="replace") for k, v in found.items()}


def following(entry_id: str) -> str:
    """The smallest id that is greater. Raises QueueError for an id of another kind of queue."""
    milliseconds, _, sequence = entry_id.partition("-")
    if not (milliseconds.isdigit() and sequence.isdigit()):
        raise QueueError(
            f"the checkpoint continues after the entry {entry_id!r}, which is none of a Redis; "
            "resume with the kind of queue that the run learned from"
        )
    return f"{milliseconds}-{int(sequence) + 1}"
