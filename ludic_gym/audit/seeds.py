"""Checks of seeds: they decide the episode, and nothing else does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ludic_gym.audit.subject import (
    Play,
    Result,
    Subject,
    always,
    play,
    random_player,
    within,
)

THREADS = 4
SHORT = 20


def seeds_differ(subject: Subject) -> Result:
    """Different seeds play different tasks, unless one task is stated."""
    firsts = {}
    for seed in within(range(8), subject.budget_s):
        env = subject.make()
        found = play(env, seed, random_player(0), SHORT)
        firsts[seed] = _facts(found)
    different = len(set(firsts.values()))
    evidence = {"seeds": len(firsts), "different": different}
    if different > 1:
        return "pass", f"{different} of {len(firsts)} seeds differ", evidence
    if subject.statement.one_task or subject.is_match:
        return "unknown", "all seeds play the same task, as stated or as in a game", evidence
    return "fail", f"{len(firsts)} seeds play the same episode: is the seed dropped?", evidence


def resets_without_seed_differ(subject: Subject) -> Result:
    """Resets without a seed continue the random numbers: no episode comes again and again."""
    env = subject.make()
    env.reset(seed=0)
    plays = [play(env, None, random_player(0), SHORT) for _ in within(range(8), subject.budget_s)]
    seen = [_facts(p) for p in plays]
    evidence = {"resets": len(seen), "different": len(set(seen))}
    if len(set(seen)) > 1:
        return "pass", f"{len(set(seen))} of {len(seen)} resets differ", evidence
    if subject.statement.one_task or subject.is_match:
        return "unknown", "all episodes are the same, as stated or as in a game", evidence
    return "fail", f"{len(seen)} resets without a seed play the same episode", evidence


def history_is_forgotten(subject: Subject) -> Result:
    """An episode does not depend on the episodes that the environment has played before."""
    used = subject.make()
    for seed in within(range(6), subject.budget_s):
        expected = _facts(play(subject.make(), seed, random_player(seed), SHORT))
        # A whole episode, one that is left in its middle, and one that goes wrong.
        play(used, seed + 1, random_player(seed + 1), SHORT)
        play(used, seed + 2, random_player(seed), 1)
        play(used, seed, always("\0"), SHORT)
        found = _facts(play(used, seed, random_player(seed), SHORT))
        if found != expected:
            evidence = {"new": str(expected)[:1000], "used": str(found)[:1000]}
            return "fail", f"seed {seed} plays another episode after earlier ones", evidence
    return "pass", "a used environment plays like a new one", {}


def threads_do_not_matter(subject: Subject) -> Result:
    """Environments on several threads at once play like one alone."""
    seeds = list(range(THREADS * 2))
    alone = [_facts(play(subject.make(), seed, random_player(seed), SHORT)) for seed in seeds]
    envs = [subject.make() for _ in seeds]

    def one(seed: int) -> object:
        return _facts(play(envs[seed], seed, random_player(seed), SHORT))

    with hasty_switches(), ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(one, seeds))
    wrong = [seed for seed in seeds if alone[seed] != together[seed]]
    evidence = {"threads": THREADS, "wrong seeds": wrong}
    if wrong:
        return "fail", f"seed {wrong[0]} plays another episode beside {THREADS} threads", evidence
    return "pass", f"{len(seeds)} episodes on {THREADS} threads", evidence


@contextmanager
def hasty_switches() -> Iterator[None]:
    """A block in which threads take turns 500 times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _facts(found: Play) -> tuple[object, ...]:
    """All of an episode that must not change."""
    return found.observations, found.rewards, ascii(found.infos), found.ended


SEED_CHECKS: dict[str, Callable[[Subject], Result]] = {
    "seeds/differ": seeds_differ,
    "seeds/resets-differ": resets_without_seed_differ,
    "seeds/history": history_is_forgotten,
    "seeds/threads": threads_do_not_matter,
}
