"""Discrete events of a cluster: actors, Redis, inference servers and a trainer."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

SATURATED = 0.9
Event = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Sizes and service times, in seconds.

    groups_at_once: of an actor. sequences: of a server. batch: groups. group: rollouts.
    tokens: draws the length of a rollout. env_s: of a rollout outside the servers.
    admit_s, push_s, pop_s: of Redis, per group. encode_s: of the actor. decode_s: of the reader.
    """

    actors: int
    servers: int
    groups_at_once: int = 8
    sequences: int = 128
    group: int = 8
    batch: int = 64
    max_lag: int = 4
    tokens: Callable[[random.Random], float] = lambda rng: min(rng.lognormvariate(6.9, 0.7), 8192)
    token_s: float = 0.02
    env_s: float = 0.0
    admit_s: float = 0.0
    push_s: float = 0.0
    pop_s: float = 0.0
    encode_s: float = 0.0
    decode_s: float = 0.0
    update_s: float = 0.0
    publish_s: float = 0.0
    report_s: float = 0.0


class Clock:
    """Events in order of time, and of their making where times are equal."""

    def __init__(self) -> None:
        self.now, self._events, self._numbers = 0.0, list[tuple[float, int, Event]](), count()

    def after(self, seconds: float, event: Event) -> None:
        """Have the event happen in so many seconds."""
        heappush(self._events, (self.now + seconds, next(self._numbers), event))

    def run(self, until: Callable[[], bool]) -> None:
        """Let time pass until the condition holds, or nothing is left to happen."""
        while self._events and not until():
            self.now, _, event = heappop(self._events)
            event()


class Station:
    """So many equal places at which jobs are served, in the order of their arrival."""

    def __init__(self, clock: Clock, places: int) -> None:
        self._clock, self.places, self._free = clock, places, places
        self._waiting = deque[tuple[float, Event]]()
        self.busy_s = 0.0

    def serve(self, seconds: float, then: Event) -> None:
        """Serve a job as soon as a place is free, and then do this."""
        self._waiting.append((seconds, then))
        self._start()

    def _start(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            seconds, then = self._waiting.popleft()
            self.busy_s += seconds
            self._clock.after(seconds, lambda then=then: self._end(then))

    def _end(self, then: Event) -> None:
        self._free += 1
        then()
        self._start()


@dataclass(slots=True)
class Outcome:
    """Shares of the time that each part was busy; updates per second; lags of groups; dropped."""

    busy: dict[str, float]
    updates_per_s: float
    lags: Counter[int]
    stale: int
    has_idle_actors: bool

    @property
    def bottleneck(self) -> str:
        """The busiest part, if it is saturated; otherwise what keeps more from being begun.

        That is `max_lag`, where actors wait for room, and otherwise their number.
        """
        name = max(self.busy, key=lambda each: self.busy[each])
        if self.busy[name] >= SATURATED:
            return name
        return "max_lag" if self.has_idle_actors else "actors"


@dataclass(eq=False)
class Simulation:
    """A run of a cluster; `outcome` makes it."""

    cluster: Cluster
    rng: random.Random
    clock: Clock = field(default_factory=Clock)
    version: int = 0
    running: int = 0
    stale: int = 0
    lags: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        c = self.cluster
        self.redis, self.reader = Station(self.clock, 1), Station(self.clock, 1)
        self.sequences = Station(self.clock, c.servers * c.sequences)
        self.trainer = Station(self.clock, 1)
        # Versions at which the groups began that wait for a batch, and actors that wait for room.
        self.ready, self.idle = deque[int](), c.actors * c.groups_at_once
        self.is_training = False
        reports = c.actors * c.report_s
        self.slow = 1 / (1 - reports) if reports < 1 else math.inf

    def outcome(self, updates: int, warm_up: int) -> Outcome:
        """Measures over `updates` updates, after `warm_up` ones that are not measured."""
        if self.slow == math.inf:
            return Outcome(
                dict.fromkeys(self._busy(), 0.0) | {"Redis": 1.0}, 0.0, Counter(), 0, True
            )
        self._admit()
        self.clock.run(lambda: self.version >= warm_up)
        started, busy = self.clock.now, self._busy()
        self.lags.clear()
        self.stale = 0
        self.clock.run(lambda: self.version >= warm_up + updates)
        passed = self.clock.now - started
        shares = {name: (now - busy[name]) / passed for name, now in self._busy().items()}
        shares["Redis"] += self.cluster.actors * self.cluster.report_s
        return Outcome(shares, updates / passed, self.lags, self.stale, self.idle > 0)

    def _busy(self) -> dict[str, float]:
        redis = self.redis.busy_s / self.slow
        servers = self.sequences.busy_s / self.sequences.places
        return {
            "trainer": self.trainer.busy_s,
            "servers": servers,
            "Redis": redis,
            "reader": self.reader.busy_s,
        }

    def _redis(self, seconds: float, then: Event) -> None:
        self.redis.serve(seconds * self.slow, then)

    def _admit(self) -> None:
        """Begin groups while actors are idle and the queue has room."""
        c = self.cluster
        while self.idle and self.running < (c.max_lag + 1) * c.batch:
            self.idle -= 1
            self.running += 1
            self._redis(c.admit_s, self._play)

    def _play(self) -> None:
        c, version, left = self.cluster, self.version, self.cluster.group

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.clock.after(c.encode_s, lambda: self._redis(c.push_s, lambda: pushed()))

        def pushed() -> None:
            self.idle += 1
            self._admit()
            self._redis(c.pop_s, lambda: self.reader.serve(c.decode_s, lambda: self._have(version)))

        for _ in range(c.group):
            seconds = c.tokens(self.rng) * c.token_s
            self.clock.after(c.env_s, lambda s=seconds: self.sequences.serve(s, ended))

    def _have(self, version: int) -> None:
        """Keep a group for a batch; train if it is complete."""
        self.ready.append(version)
        self._train()

    def _train(self) -> None:
        c = self.cluster
        if self.is_training:
            return
        fresh = [version for version in self.ready if self.version - version <= c.max_lag]
        dropped = len(self.ready) - len(fresh)
        self.stale, self.running = self.stale + dropped, self.running - dropped
        self.ready = deque(fresh)
        if len(self.ready) >= c.batch:
            self.is_training = True
            self.lags.update(self.version - self.ready.popleft() for _ in range(c.batch))
            self.trainer.serve(c.update_s + c.publish_s, self._trained)
        if dropped:
            self._admit()

    def _trained(self) -> None:
        self.version += 1
        self.running -= self.cluster.batch
        self.is_training = False
        self._admit()
        self._train()


def simulated(cluster: Cluster, *, updates: int = 60, warm_up: int = 15, seed: int = 0) -> Outcome:
    """The outcome of a cluster. Equal arguments give equal outcomes."""
    return Simulation(cluster, random.Random(seed)).outcome(updates, warm_up)
