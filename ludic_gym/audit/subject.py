"""AuditSubject: an environment under audit, what it states about itself, and plays of it."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import gymnasium as gym

from envs_registry.catalog import CATALOG
from ludic_gym.envs.core.base import Info
from ludic_gym.errors import NoOracle
from ludic_gym.making import make_env
from ludic_gym.offered import legal_actions
from ludic_gym.policies.reference import KnowsBestAction
from ludic_gym.types import Env

T = TypeVar("T")
Player = Callable[[Env, str], str]
"""Chooses an action from the environment and its last observation."""

Outcome = Literal["pass", "fail", "not judged"]
MOST_TURNS = 200
# More than the longest limit of our own environments.
ENDLESS = 1500
# Tags of the catalogue whose environments draw a task from the seed.
DRAWN = {"procedural", "dataset", "sandbox", "tools"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Facts that the author states, against which the environment is measured.

    oracle: success rate of the oracle.
    random: success rate of random legal actions, random texts if any text is legal; None if it is
        not stated.
    floor: highest success rate of any reply that was fixed before the task was read.
    partial: highest share of a success's reward that a failure may be paid.
    tasks: number of different tasks; None for many.
    levels: an argument of the environment and its values, from the easiest to the hardest.
    """

    oracle: float = 1.0
    random: float | None = None
    floor: float = 0.5
    partial: float = 0.05
    tasks: int | None = None
    levels: tuple[str, tuple[Any, ...]] = ("", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one check.

    check: its id, such as "leaks/info".
    outcome: "not judged" where the audit cannot decide.
    summary: one sentence with the values that decided.
    evidence: the measurements, as JSON.
    seconds: CPU time of this process.
    """

    check: str
    outcome: Outcome
    summary: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


Result = tuple[Outcome, str, Mapping[str, Any]]
Check = Callable[["AuditSubject"], Result]


class Undecided(Exception):
    """Raised by a check that cannot decide; the text is the summary of an "not judged"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One episode: observations (one more than actions), actions, rewards and infos."""

    seed: int
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    rewards: tuple[float, ...]
    infos: tuple[Info, ...]
    ended: bool

    @property
    def total(self) -> float:
        """Sum of the rewards."""
        return float(sum(self.rewards))

    @property
    def success(self) -> bool:
        """True if the last info says so; without that key, if the sum of rewards is at least 1."""
        return bool(self.infos[-1].get("success", self.total >= 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSubject:
    """An environment under audit.

    env_id, kwargs: arguments of `gymnasium.make`.
    episodes: number of episodes per measurement; budget_s: wall time after which a measurement
        stops early, with four episodes at least.
    """

    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    statement: Statement = Statement()
    episodes: int = 48
    budget_s: float = 4.0
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def make(self, **kwargs: Any) -> Env:  # noqa: ANN401 (as gymnasium.make)
        """A new environment."""
        # Gymnasium's checker would warn of each fault once more, and step in its own way.
        return make_env(self.env_id, **{"disable_env_checker": True, **self.kwargs, **kwargs})

    def require_oracle(self) -> None:
        """Raise Undecided without a best action at the start of an episode."""
        if not has_oracle(self):
            raise Undecided("the environment has no oracle_action()")

    def plays(self, player: Callable[[int], Player], most: int = MOST_TURNS) -> list[Play]:
        """Episodes of a player, made from each seed."""
        env = self.make()
        seeds = in_budget(range(self.episodes), self.budget_s)
        return [play(env, seed, player(seed), most) for seed in seeds]

    def once(self, name: str, make: Callable[[], T]) -> T:
        """A value that several checks need, made by the first of them."""
        if name not in self._made:
            self._made[name] = make()
        value: T = self._made[name]
        return value

    def oracle_plays(self) -> list[Play]:
        """Episodes of the oracle; none without an oracle."""
        if not has_oracle(self):
            return []
        return self.once("oracle", lambda: self.plays(lambda seed: oracle, ENDLESS))


def in_budget(values: Iterable[T], budget_s: float) -> Iterator[T]:
    """The values until the time is over, four at least."""
    # Wall time: an environment may wait for other processes, whose CPU time is not seen here.
    start = time.perf_counter()
    for count, value in enumerate(values):
        if count >= 4 and time.perf_counter() - start > budget_s:
            return
        yield value


def play(env: Env, seed: int | None, player: Player, most: int = MOST_TURNS) -> Play:
    """One episode, of at most `most` turns."""
    text, info = env.reset(seed=seed)
    observations, infos = [str(text)], [info]
    actions, rewards = list[str](), list[float]()
    ended = False
    for _ in range(most):
        action = player(env, observations[-1])
        seen, reward, terminated, truncated, info = env.step(action)
        actions.append(action)
        observations.append(str(seen))
        rewards.append(float(reward))
        infos.append(info)
        if ended := terminated or truncated:
            break
    return Play(
        seed=seed or 0,
        observations=tuple(observations),
        actions=tuple(actions),
        rewards=tuple(rewards),
        infos=tuple(infos),
        ended=ended,
    )


def legal_at_start(subject: AuditSubject) -> bool:
    """True if the environment lists legal actions."""
    env = subject.make()
    env.reset(seed=0)
    return bool(legal_actions(env))


def oracle(env: Env, _: str = "") -> str:
    """The player with the best action. Raises NoOracle."""
    inner = env.unwrapped
    if not isinstance(inner, KnowsBestAction):
        raise NoOracle(f"{type(inner).__name__} has no oracle_action()")
    return inner.oracle_action()


def has_oracle(subject: AuditSubject) -> bool:
    """True if the environment knows a best action at the start of an episode."""
    env = subject.make()
    env.reset(seed=0)
    try:
        oracle(env)
    except NoOracle:
        return False
    return True


def random_player(seed: int) -> Player:
    """A player of random legal actions, random texts if any text is legal."""
    rng = random.Random(seed)
    spaces = list[gym.Space[str]]()

    def act(env: Env, _: str) -> str:
        legal = legal_actions(env)
        if legal:
            return rng.choice(legal)
        if not spaces:
            # A copy, because environments on other threads draw from the same space.
            spaces.append(copy.deepcopy(env.action_space))
            spaces[0].seed(seed)
        return spaces[0].sample()

    return act


def always(text: str) -> Player:
    """The player of one text."""
    return lambda env, observation: text


def statement_of(env_id: str) -> Statement:
    """The catalogue's statement on an id; the default one for an id of others.

    >>> statement_of("ludic/KuhnPoker-v0").oracle, statement_of("mine/Riddle-v0").oracle
    (0.75, 1.0)
    """
    entry = next((entry for entry in CATALOG if entry.id == env_id), None)
    if entry is None:
        return Statement()
    return Statement(
        oracle=entry.oracle_success,
        random=entry.random_success,
        floor=max(0.5, entry.random_success + 0.3),
        partial=entry.failure_share,
        tasks=None if DRAWN & set(entry.tags) else 1,
        levels=entry.levels,
    )
