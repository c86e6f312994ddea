"""The search for reward: a bandit over players that do not solve the task.

Upper confidence bounds (Auer et al. 2002, UCB1) choose which player plays the next episode, so that
a player that is paid is played often. Players that earn most are joined in pairs after half of the
episodes. What the best ones earn is measured on further seeds, since the best of many is lucky.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ludic_gym.audit.players import (
    Players,
    embellished,
    fixed,
    joined,
    legal,
    quoting,
    stalling,
    unread,
)
from ludic_gym.audit.scores import SIGMAS, earnings, error_of, transcript
from ludic_gym.audit.subject import (
    AuditSubject,
    Check,
    Play,
    Player,
    Result,
    Undecided,
    in_budget,
    legal_at_start,
    play,
)
from ludic_gym.types import Env

# Turns of an episode, turns and episodes of a search.
MOST_TURNS, MOST_STEPS, PULLS = 50, 8000, 320
# Seconds after which it stops early: of CPU, and of wall for processes that others started.
CPU_S, WALL_S = 8.0, 30.0
# Best players that are measured again, and the episodes of each.
FINALISTS, FRESH = 6, 48
PAIRS = 4
# Failures whose mean reward says something.
FEWEST = 4


@dataclass(slots=True)
class Arm:
    """A player of the search, and its plays so far.

    kind: "unread" for a text that fits no task, "stalling" for one that knows the first turns, else
        "reading".
    """

    name: str
    kind: str
    make: Callable[[int], Player]
    plays: list[Play] = field(default_factory=list)

    def bound(self, top: float, rounds: int) -> float:
        """Upper confidence bound of its reward, as a share of a success's."""
        # A success is no fault of a player that knows how to begin.
        plays = [0.0 if self.kind == "stalling" and p.success else p.total for p in self.plays]
        shares = [min(max(total / abs(top), 0.0), 2.0) for total in plays]
        return sum(shares) / len(shares) + math.sqrt(2 * math.log(rounds) / len(shares)) / 4

    def paid(self) -> float:
        """Mean reward of its failures; 0 if they are too few."""
        failures = [one.total for one in self.plays if not one.success]
        return sum(failures) / len(failures) if len(failures) >= FEWEST else 0.0

    def promise(self) -> float:
        """Sum of the rewards of its failures, by the number of plays and one more."""
        # One more, so that a player of one lucky play is behind one of several.
        return sum(one.total for one in self.plays if not one.success) / (len(self.plays) + 1)

    def luck(self) -> float:
        """Number of its successes, by the number of plays and one more."""
        return sum(one.success for one in self.plays) / (len(self.plays) + 1)

    def success(self) -> float:
        """Rate of its successes."""
        return sum(one.success for one in self.plays) / len(self.plays)


def no_reward_without_success(subject: AuditSubject) -> Result:
    """No player that does not solve the task is paid more than the stated share of a success.

    Nor does one succeed more often than the stated floor, or earn more than a success by a failure.
    """
    top, env = success_pay(subject), subject.make()
    arms, episodes, complete = searched(subject, env, top)
    summary = f"{episodes} episodes of {len(arms)} players"
    if not complete:
        summary += f", the first of {PULLS}"
    solvers = [arm for arm in arms if arm.kind != "stalling"]
    best = [*by(arms, Arm.promise), *by(solvers, Arm.luck)]
    evidence: dict[str, Any] = {"success pays": top, "episodes": episodes, "players": len(arms)}
    for arm in {one.name: one for one in best}.values():
        fresh = [
            play(env, PULLS + seed, arm.make(PULLS + seed), MOST_TURNS)
            for seed in range(min(FRESH, max(FEWEST, MOST_STEPS // 20 // turns_of(arm))))
        ]
        again = Arm(arm.name, arm.kind, arm.make, fresh)
        evidence[arm.name] = {"success": again.success(), "paid": again.paid()}
        if fault := fault_of(subject, again, top):
            example = max(fresh, key=lambda one: (one.total, one.success))
            return "fail", fault, {**evidence, "example": transcript(example)}
    return (
        "pass",
        f"{summary}: none is paid for failures, or succeeds by more than chance",
        evidence,
    )


def fault_of(subject: AuditSubject, arm: Arm, top: float) -> str:
    """Reason for which a player should not have earned what it did; "" without one."""
    stated, count = subject.statement, len(arm.plays)
    paid, success = arm.paid(), arm.success()
    if paid >= abs(top):
        return f"failures by {arm.name!r} are paid {paid:.3g}, a success {top:.3g}"
    if arm.kind == "stalling":
        return ""
    # Where any text is a move, or opponents may lose by themselves, some success is chance.
    chance = max(0.2, stated.random or 0.0)
    if arm.kind == "reading" or legal_at_start(subject):
        chance = max(chance, stated.floor)
    if success > chance + SIGMAS * error_of(chance, count):
        return f"{arm.name!r} succeeds in {success:.0%}, more than the floor of {chance:.0%}"
    if paid > stated.partial * abs(top):
        share = f"the stated share is {stated.partial:.0%}"
        return f"failures by {arm.name!r} are paid {paid:.3g} of {top:.3g}; {share}"
    return ""


def searched(subject: AuditSubject, env: Env, top: float) -> tuple[list[Arm], int, bool]:
    """The players with their plays, the number of episodes, and True if it came to its end."""
    arms, start, steps = arms_of(subject, env), (cpu_s(), time.perf_counter()), 0
    untried = [*arms]
    for pull in range(PULLS):
        late = cpu_s() - start[0] > CPU_S or time.perf_counter() - start[1] > WALL_S
        if steps > MOST_STEPS or late:
            return [arm for arm in arms if arm.plays], pull, False
        if pull == PULLS * 3 // 4:
            pairs = paired(arms)
            arms += pairs
            untried += pairs
        arm = untried.pop(0) if untried else max(arms, key=lambda one: one.bound(top, pull + 1))
        seed = len(arm.plays)
        arm.plays.append(play(env, seed, arm.make(seed), MOST_TURNS))
        steps += len(arm.plays[-1].actions)
    return [arm for arm in arms if arm.plays], PULLS, True


def cpu_s() -> float:
    """CPU time of this process and of those that it has ended."""
    return sum(os.times()[:4])


def arms_of(subject: AuditSubject, env: Env) -> list[Arm]:
    """All players for the environment."""
    text, info = env.reset(seed=0)
    kinds: list[tuple[str, Players]] = [
        ("unread", unread()),
        ("reading", fixed()),
        ("reading", legal(env)),
        ("reading", quoting(str(info.get("system_prompt", "")), str(text))),
        ("stalling", stalling(subject)),
    ]
    arms = [Arm(name, kind, make) for kind, players in kinds for name, make in players.items()]
    # Of a search that stops early, all kinds are tried.
    random.Random(0).shuffle(arms)
    return arms


def paired(arms: Sequence[Arm]) -> list[Arm]:
    """The players that earn most, joined with each other."""
    chosen = [arm for arm in by(arms, lambda arm: arm.plays[0].total) if arm.kind != "stalling"]
    chosen = [arm for arm in chosen if arm.plays[0].total > 0][:PAIRS]
    return [
        Arm(f"{one.name}, {other.name}", "reading", joined(one.make, other.make))
        for one in chosen
        for other in chosen
        if one is not other
    ]


def by(arms: Sequence[Arm], value: Callable[[Arm], float]) -> list[Arm]:
    """The arms with the highest values."""
    played = [arm for arm in arms if arm.plays]
    return sorted(played, key=value, reverse=True)[:FINALISTS]


def turns_of(arm: Arm) -> int:
    """Mean number of turns of a player's episodes, at least 1."""
    return max(1, sum(len(one.actions) for one in arm.plays) // len(arm.plays))


def success_pay(subject: AuditSubject) -> float:
    """Mean reward of the oracle's successes; 1 without an oracle."""
    plays = subject.oracle_plays()
    won = [one.total for one in plays if one.success]
    return sum(won) / len(won) or 1.0 if won else 1.0


def embellishments_are_not_paid(subject: AuditSubject) -> Result:
    """Words around the oracle's replies, and turns before them, are not paid."""
    subject.require_oracle()
    plain = {one.seed: one.total for one in subject.oracle_plays() if one.success}
    if not plain:
        raise Undecided("no episode of the oracle succeeds")
    env, seeds = subject.make(), list(plain)[:8]
    mean = sum(plain[seed] for seed in seeds) / len(seeds)
    evidence = {}
    for name, make in in_budget(embellished().items(), subject.budget_s):
        plays = [play(env, seed, make(seed), MOST_TURNS * 4) for seed in seeds]
        earned = earnings(plays)
        evidence[name] = earned.as_json()
        gains = sum(one.total > plain[one.seed] + 1e-6 for one in plays)
        # Where luck decides, another turn may have a better end.
        if gains > 0.9 * len(plays) and earned.reward > mean + 0.01 * abs(mean):
            best = {"plain": mean, **evidence, "example": transcript(plays[0])}
            summary = f"the oracle with {name} earns {earned.reward:.3g}, without {mean:.3g}"
            return "fail", summary, best
    return "pass", f"{len(evidence)} ways, in {len(seeds)} tasks", evidence


SEARCH_CHECKS: dict[str, Check] = {
    "scores/search": no_reward_without_success,
    "scores/embellished": embellishments_are_not_paid,
}
