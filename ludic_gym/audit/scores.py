"""Checks of what plays earn: the oracle, players that do not read the task, and their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ludic_gym.audit.subject import (
    AuditSubject,
    Check,
    Play,
    Result,
    Undecided,
    always,
    play,
    random_player,
)

# Standard errors by which a measured rate may differ from a stated one: one false alarm in 30,000.
SIGMAS = 4.0


@dataclass(frozen=True, slots=True)
class Earnings:
    """Success rate and mean sum of rewards of some plays."""

    count: int
    success: float
    reward: float

    def as_json(self) -> dict[str, Any]:
        """The three numbers by name."""
        return {"episodes": self.count, "success": self.success, "reward": self.reward}


def earnings(plays: Sequence[Play]) -> Earnings:
    """Success rate and mean sum of rewards of the plays."""
    count = len(plays)
    return Earnings(
        count, sum(p.success for p in plays) / count, sum(p.total for p in plays) / count
    )


def error_of(rate: float, count: int) -> float:
    """Standard error of a rate of `count` episodes, by the normal approximation.

    Rates of 0 and 1 are moved inwards by one success or failure more.
    """
    # A rate of 0 or 1 would have no error, so that one failure in a million would contradict 1.
    inside = min(max(rate, 1 / (count + 2)), 1 - 1 / (count + 2))
    return math.sqrt(inside * (1 - inside) / count)


def oracle_earns_stated(subject: AuditSubject) -> Result:
    """The oracle reaches its stated success rate, and ends its episodes."""
    subject.require_oracle()
    plays = subject.oracle_plays()
    earned, stated = earnings(plays), subject.statement.oracle
    evidence = {"stated": stated, **earned.as_json()}
    failed = next((p for p in plays if not p.success), None)
    if failed is not None:
        evidence["failed"] = transcript(failed)
    # An oracle that is stated to be perfect has no bad luck.
    margin = SIGMAS * error_of(stated, earned.count) if stated < 1 else 0.0
    summary = f"the oracle succeeds in {earned.success:.0%} of {earned.count} episodes"
    if earned.success < stated - margin:
        return "fail", f"{summary}, stated are {stated:.1%}", evidence
    if not all(p.ended for p in plays):
        return "fail", "an episode of the oracle does not end", evidence
    return "pass", summary, evidence


def random_earns_stated(subject: AuditSubject) -> Result:
    """Random play has the success rate that is stated for it."""
    earned = earnings(subject.plays(random_player))
    stated = subject.statement.random
    evidence = {"stated": stated, **earned.as_json()}
    summary = f"random play succeeds in {earned.success:.0%} of {earned.count} episodes"
    if stated is None:
        # Random play is one of the players that do not read the task.
        high = subject.statement.floor + SIGMAS * error_of(subject.statement.floor, earned.count)
        if earned.success > high:
            return "fail", f"{summary}, more than the floor", evidence
        return "not judged", f"{summary}; no rate is stated", evidence
    if abs(earned.success - stated) > SIGMAS * error_of(stated, earned.count):
        return "fail", f"{summary}, stated are {stated:.1%}", evidence
    return "pass", summary, evidence


def other_answers_fail(subject: AuditSubject) -> Result:
    """The right answers of other tasks fail: the grader looks at its own task."""
    answers = one_turn_answers(subject)
    env = subject.make()
    wins, tried = 0, 0
    for seed, answer in answers.items():
        # Four per task: the number of pairs grows with the square of the tasks.
        for other in [text for text in dict.fromkeys(answers.values()) if text != answer][:4]:
            episode = play(env, seed, always(other))
            tried += 1
            wins += episode.success
    if not tried:
        return "not judged", "all tasks have the same answer", {}
    rate, floor = wins / tried, subject.statement.floor
    evidence = {"tried": tried, "success": rate, "floor": floor}
    summary = f"answers of other tasks succeed in {rate:.0%} of {tried} cases"
    return ("fail" if rate > floor else "pass"), summary, evidence


def one_turn_answers(subject: AuditSubject) -> dict[int, str]:
    """The oracle's reply by seed. Raises Undecided unless it ends each episode with its first."""
    plays = subject.oracle_plays()
    if not plays or not all(p.ended and len(p.actions) == 1 for p in plays):
        raise Undecided("only for an oracle that ends its episodes with one reply")
    return {p.seed: p.actions[0] for p in plays}


def transcript(episode: Play) -> list[str]:
    """Seed, first and last observations and actions, cut to what a person reads."""
    turns = [
        f"> {action[:200]}\n{seen[:300]}"
        for action, seen in zip(episode.actions, episode.observations[1:], strict=True)
    ]
    lines = turns if len(turns) <= 4 else [*turns[:2], "...", *turns[-2:]]
    last = f"reward {episode.total:g}, success {episode.success}"
    return [f"seed {episode.seed}", episode.observations[0][:500], *lines, last]


SCORE_CHECKS: dict[str, Check] = {
    "scores/oracle": oracle_earns_stated,
    "scores/random": random_earns_stated,
    "scores/other-tasks": other_answers_fail,
}
