"""Checks of truths by solvers that know the task's text alone, and of bandits by what arms show."""

from __future__ import annotations

import re
from collections import defaultdict

from ludic_gym.audit.answers import split_reply
from ludic_gym.audit.players import FORMS
from ludic_gym.audit.scores import transcript
from ludic_gym.audit.subject import AuditSubject, Check, Result, always, in_budget, play
from ludic_gym.deciders import DECIDERS
from ludic_gym.offered import legal_actions

# Tasks that must be read, of those that are asked, and those of them that must be solved.
FEWEST, SOLVED = 5, 0.5
ARM_SEEDS, MOST_ARMS, MOST_PULLS = 12, 8, 60
_LISTED = re.compile(r"(?:buttons?|levers?|arms?|machines?)\b\s*:\s*((?:[\w-]+, )+[\w-]+)")
_GAINED = re.compile(r"(?:reward|got|won|earned|payoff|received)\D{0,20}(-?\d+(?:\.\d+)?)")


def truths_are_right(subject: AuditSubject) -> Result:
    """An independent solver's answer is graded right, in every task that the solver can read."""
    env = subject.make()
    wins, kinds = dict[int, bool](), set[str]()
    failed: dict[str, object] = {}
    for seed in in_budget(range(subject.episodes), subject.budget_s):
        text, info = env.reset(seed=seed)
        prompt = str(info.get("system_prompt", ""))
        # Some rules are in the prompt alone, and some tasks repeat them.
        found = {kind: solve(f"{prompt}\n{text}") for kind, solve in DECIDERS.items()}
        solved = {kind: replies for kind, replies in found.items() if replies}
        if len(solved) != 1:
            continue
        ((kind, replies),) = solved.items()
        forms = [split_reply("", prompt)[0], *FORMS]
        texts = dict.fromkeys(form.format(r) for r in replies for form in forms)
        texts |= dict.fromkeys(reply.casefold() for reply in replies)
        plays = [play(env, seed, always(one), 1) for one in texts]
        wins[seed] = any(one.success for one in plays)
        kinds.add(kind)
        if not wins[seed] and not failed:
            failed = {"task": text, "solution": replies[0], "play": transcript(plays[0])}
    if len(wins) < FEWEST:
        return "not judged", "no solver reads these tasks: their truths are not judged", {}
    rate, named = sum(wins.values()) / len(wins), ", ".join(sorted(kinds))
    evidence = {"solver": named, "tasks": len(wins), "agree": rate, **failed}
    if rate < SOLVED:
        return (
            "not judged",
            f"{named}: its replies are right in {rate:.0%}; is it misread?",
            evidence,
        )
    summary = f"{named}: {len(wins) - sum(wins.values())} of {len(wins)} truths are wrong"
    return ("fail" if rate < 1 else "pass"), summary, evidence


def best_arm_pays_most(subject: AuditSubject) -> Result:
    """Of a bandit, the arm that showed most while it was tried pays no less than any other."""
    env = subject.make()
    text, info = env.reset(seed=0)
    listed = _LISTED.search(f"{info.get('system_prompt', '')}\n{text}")
    if listed is None:
        return "not judged", "it names no arms of a bandit", {}
    arms = [re.sub(r"\W", "", arm) for arm in listed[1].split(", ")][:MOST_ARMS]
    bare = {*arms} <= {*legal_actions(env)}
    paid: dict[str, list[float]] = defaultdict(list)
    for seed in in_budget(range(ARM_SEEDS), 2 * subject.budget_s):
        shown, earned = dict[str, float](), dict[str, float]()
        for arm in arms:
            pulled = play(env, seed, always(arm if bare else f"[{arm}]"), MOST_PULLS)
            gains = [float(n) for seen in pulled.observations[1:] for n in _GAINED.findall(seen)]
            if pulled.ended and gains:
                shown[arm], earned[arm] = sum(gains) / len(gains), pulled.total
        if len(shown) < 2:
            return "not judged", "pulls of its arms show no rewards", {}
        for name, choose in (("best", max), ("worst", min)):
            paid[name].append(earned[choose(shown, key=lambda arm: shown[arm])])
    best, worst = (sum(paid[name]) / len(paid[name]) for name in ("best", "worst"))
    evidence = {"arms": arms, "best": best, "worst": worst}
    summary = f"the arm that shows most pays {best:.2f}, the one that shows least {worst:.2f}"
    return ("fail" if worst >= best else "pass"), summary, evidence


TRUTH_CHECKS: dict[str, Check] = {
    "truths/solved": truths_are_right,
    "truths/arms": best_arm_pays_most,
}
