"""What a queue looked like at one moment, and what went on between two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ludic_train.pipeline.queues.base import QueueStatus
from ludic_train.top.servers import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Of one actor, per second."""

    groups: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A status, when it was (seconds of any clock), and the rates since the sample before.

    servers: the load of the servers that sample; none where actors do.
    """

    status: QueueStatus
    at_s: float
    actors: Mapping[str, Rate] = field(default_factory=dict)
    trained_per_s: float = 0.0
    servers: Sequence[Load] = ()

    @property
    def tokens_per_s(self) -> float:
        """Tokens that all actors sample together."""
        return sum(rate.tokens for rate in self.actors.values())


def next_sample(
    before: Sample | None, status: QueueStatus, at_s: float, servers: Sequence[Load] = ()
) -> Sample:
    """The sample of `status`; rates are 0 where nothing is known from before."""
    seconds = 0.0 if before is None else at_s - before.at_s
    if before is None or seconds <= 0:
        return Sample(status=status, at_s=at_s, servers=servers)
    known = {report.name: report for report in before.status.actors}
    rates = {
        now.name: Rate(
            # An actor that was started again under its name counts from 0.
            groups=max(0.0, (now.groups - known[now.name].groups) / seconds),
            tokens=max(0.0, (now.tokens - known[now.name].tokens) / seconds),
        )
        for now in status.actors
        if now.name in known
    }
    trained = status.counts.get("trained", 0) - before.status.counts.get("trained", 0)
    return Sample(
        status=status,
        at_s=at_s,
        actors=rates,
        trained_per_s=max(0.0, trained / seconds),
        servers=servers,
    )
