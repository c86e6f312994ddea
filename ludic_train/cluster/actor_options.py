"""Settings and totals of an actor."""

from __future__ import annotations

from dataclasses import dataclass

from ludic_gym.errors import ConfigError
from ludic_gym.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorOptions:
    """Settings of an actor.

        options = ActorOptions(concurrency=128, timeout_s=300, zstd_level=3)

    group_size: None takes the trainer's; another one than the trainer's is an error.
    concurrency: episodes at once; whole groups of them are begun.
    max_turns: of an episode, instead of its task's. timeout_s: the longest an episode may take.
    heartbeat_s: seconds between two reports to the queue.
    grace_s: time in which groups that are being played may end when the actor has to stop.
    max_failures: groups in a row that may fail, or refreshes of the params, with growing pauses,
        before the actor ends; groups that end in the same pause fail once.
    zstd_level: compresses groups; None sends them as they are.

    Raises ConfigError where not even one group could be played at a time.
    """

    group_size: int | None = None
    concurrency: int = 64
    max_turns: int | None = None
    timeout_s: float | None = None
    heartbeat_s: float = 1.0
    grace_s: float = 30.0
    max_failures: int = 8
    zstd_level: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= (self.group_size or 1) <= self.concurrency:
            raise ConfigError(
                f"concurrency={self.concurrency} with group_size={self.group_size}; an actor plays "
                "at least one whole group at a time"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSummary:
    """Totals of an actor.

    pushed: groups in the queue. stale: groups that were dropped while they were played.
    handed_over: groups that were begun, and left to other actors.
    returned: tasks that were taken from the iterator and not finished, each once; not those of
        groups that were handed over.
    """

    pushed: int
    stale: int
    returned: tuple[Task, ...]
    handed_over: int = 0
