"""Checks of what plays earn: the oracle, players that do not read the task, and their order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ludic_gym.audit.subject import (
    ENDLESS,
    AuditSubject,
    Check,
    Play,
    Player,
    Result,
    Undecided,
    always,
    has_oracle,
    in_budget,
    legal_at_start,
    oracle,
    play,
    random_player,
)
from ludic_gym.errors import NoOracle
from ludic_gym.offered import legal_actions
from ludic_gym.types import Env

# Standard errors by which a measured rate may differ from a stated one: one false alarm in 30,000.
SIGMAS = 4.0
FIXED = ("0", "1", "2", "A", "B", "C", "yes", "no", "True", "False", "[]", "the", "-1", "None")
LONGEST = 2**16
FORMS = ("{}", "<answer>{}</answer>", "\\boxed{{{}}}")


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
    plays = subject.plays(lambda seed: oracle, ENDLESS)
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
        return "unknown", f"{summary}; no rate is stated", evidence
    if abs(earned.success - stated) > SIGMAS * error_of(stated, earned.count):
        return "fail", f"{summary}, stated are {stated:.1%}", evidence
    return "pass", summary, evidence


def uninformed_earn_nothing(subject: AuditSubject) -> Result:
    """No reply of nothing, of anything, or of the prompt itself succeeds or is paid."""
    players: dict[str, Player] = {
        "empty": always(""),
        "blank": always(" \n"),
        "longest": always("x" * LONGEST),
        "copy of the observation": lambda env, observation: observation,
        "copy of the prompt": always(str(subject.make().reset(seed=0)[1].get("system_prompt", ""))),
        "lorem": always("I do not know the answer."),
    }
    rates = {name: brief_earnings(subject, player) for name, player in players.items()}
    evidence = {name: earned.as_json() for name, earned in rates.items()}
    best = max(rates, key=lambda name: (rates[name].success, rates[name].reward))
    summary = f"the best of them, {best!r}, succeeds in {rates[best].success:.0%}"
    # Where any text is a move, or opponents may lose by themselves, some success is chance; and a
    # prompt may name a move, which is then a fixed reply.
    chance = max(0.2, subject.statement.random or 0.0)
    if legal_at_start(subject):
        chance = max(chance, subject.statement.floor)
    if rates[best].success > chance + SIGMAS * error_of(chance, rates[best].count) / 2:
        return "fail", summary, evidence
    # Rewards are compared with the oracle's, since each environment has a scale of its own.
    paid = {name: earned.reward for name, earned in rates.items() if earned.reward > 0}
    if paid and not rates[best].success and has_oracle(subject):
        top = earnings(subject.plays(lambda seed: oracle)).reward
        name = max(paid, key=lambda name: paid[name])
        if paid[name] > 0.05 * abs(top) and not legal_at_start(subject):
            return "fail", f"{name!r} is paid {paid[name]:.3g}, the oracle {top:.3g}", evidence
    return "pass", summary, evidence


def fixed_answers_stay_low(subject: AuditSubject) -> Result:
    """No reply that is fixed before the task is read succeeds more often than the floor."""
    env = subject.make()
    env.reset(seed=0)
    texts = [*FIXED, *random.Random(0).sample(legal := legal_actions(env), min(4, len(legal)))]
    # Marked too, because many graders read nothing else.
    texts += [form.format(text) for form in FORMS[1:] for text in FIXED[:6]]
    # Where an episode takes long, only the first texts are tried.
    tried = in_budget(texts, 2 * subject.budget_s)
    rates = {text: brief_earnings(subject, always(text)) for text in tried}
    best = max(rates, key=lambda text: rates[text].success)
    earned, floor = rates[best], subject.statement.floor
    evidence = {"floor": floor, "texts": len(rates), "best": best, **earned.as_json()}
    summary = f"the best fixed reply, {best[:40]!r}, succeeds in {earned.success:.0%}"
    # The best of several is a few standard errors above its true rate.
    if earned.success > floor + SIGMAS * error_of(floor, earned.count):
        return "fail", f"{summary}, more than the floor of {floor:.0%}", evidence
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
        return "unknown", "all tasks have the same answer", {}
    rate, floor = wins / tried, subject.statement.floor
    evidence = {"tried": tried, "success": rate, "floor": floor}
    summary = f"answers of other tasks succeed in {rate:.0%} of {tried} cases"
    return ("fail" if rate > floor else "pass"), summary, evidence


def better_players_earn_more(subject: AuditSubject) -> Result:
    """A player that errs less earns no less: random, half oracle, oracle.

    Fails too if a player succeeds less often by half, and has the oracle's mean reward.
    """
    subject.require_oracle()
    ladder = {
        "random": earnings(subject.plays(random_player)),
        "half oracle": earnings(subject.plays(half_oracle)),
        "oracle": earnings(subject.plays(lambda seed: oracle)),
        "empty": earnings(subject.plays(lambda seed: always(""))),
    }
    evidence = {name: earned.as_json() for name, earned in ladder.items()}
    top = ladder["oracle"]
    slack = SIGMAS / 2 * max(error_of(f.success, f.count) for f in ladder.values())
    for name, earned in ladder.items():
        if earned.success > top.success + slack:
            return "fail", f"{name!r} succeeds more often than the oracle", evidence
        if earned.reward > top.reward + 2 * slack * max(1.0, abs(top.reward)) and top.success > 0.9:
            return "fail", f"{name!r} earns {earned.reward:.3g}, oracle {top.reward:.3g}", evidence
        # Equal play in all respects: a success is paid as much as a failure.
        if name != "oracle" and top.success - earned.success > 0.5 and top.reward <= earned.reward:
            return "fail", f"{name!r} fails more often and earns as much", evidence
    rates = ", ".join(f"{name} {earned.reward:.2f}" for name, earned in ladder.items())
    return "pass", rates, evidence


def successes_are_paid(subject: AuditSubject) -> Result:
    """In each episode, a success is paid more than any failure of the same task."""
    subject.require_oracle()
    good = subject.plays(lambda seed: oracle)
    bad = [*subject.plays(lambda seed: always("")), *subject.plays(random_player)]
    won = {p.seed: p for p in good if p.success}
    for failed in bad:
        best = won.get(failed.seed)
        if best is not None and not failed.success and failed.total >= best.total:
            evidence = {"success": transcript(best), "failure": transcript(failed)}
            return "fail", f"a failure earns {failed.total:g}, success {best.total:g}", evidence
    if not won:
        return "unknown", "no episode of the oracle succeeds", {}
    return "pass", f"in {len(won)} tasks", {"tasks": len(won)}


def brief_earnings(subject: AuditSubject, player: Player) -> Earnings:
    """Earnings of a player in 50 turns of each episode, in a quarter of the time."""
    hasty = replace(subject, budget_s=subject.budget_s / 4)
    return earnings(hasty.plays(lambda seed: player, 50))


def half_oracle(seed: int) -> Player:
    """A player whose turns are the oracle's in half the cases, else random."""
    rng, otherwise = random.Random(seed), random_player(seed)

    def act(env: Env, observation: str) -> str:
        if rng.random() < 0.5:
            return otherwise(env, observation)
        try:
            return oracle(env)
        except NoOracle:
            # A position that earlier errors have lost may have no best action.
            return otherwise(env, observation)

    return act


def one_turn_answers(subject: AuditSubject) -> dict[int, str]:
    """The oracle's reply by seed. Raises Undecided unless it ends each episode with its first."""
    plays = subject.plays(lambda seed: oracle, most=1) if has_oracle(subject) else []
    if not plays or not all(p.ended for p in plays):
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
    "scores/uninformed": uninformed_earn_nothing,
    "scores/fixed": fixed_answers_stay_low,
    "scores/other-tasks": other_answers_fail,
    "scores/ladder": better_players_earn_more,
    "scores/success-paid": successes_are_paid,
}
