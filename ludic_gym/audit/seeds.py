"""Checks of seeds: they decide the episode, and nothing else does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Barrier, BrokenBarrierError

from ludic_gym.audit.subject import (
    AuditSubject,
    Play,
    Player,
    Result,
    always,
    has_oracle,
    legal_at_start,
    oracle,
    play,
    random_player,
    within,
)
from ludic_gym.types import Env

THREADS = 4
SHORT = 20
MEETING_S = 2.0


def seeds_differ(subject: AuditSubject) -> Result:
    """Different seeds play different tasks, unless one task is stated."""
    seeds = list(within(range(8), subject.budget_s))
    plays = [p for player in _players(subject) for p in _episodes(subject, player, seeds)]
    return _varied(subject, plays, "seeds", "is the seed dropped?")


def resets_without_seed_differ(subject: AuditSubject) -> Result:
    """Resets without a seed continue the random numbers: no episode comes again and again."""
    plays = [
        # Seeded first, so that the audit repeats; that episode itself is left out.
        p
        for player in _players(subject)
        for p in _episodes(subject, player, [0] + [None] * 7)[1:]
    ]
    return _varied(subject, plays, "resets without a seed", "do they start at one seed again?")


def _players(subject: AuditSubject) -> list[Player]:
    """Players that a hidden task answers differently: random, and the oracle if there is one."""
    return [random_player(0), *([oracle] if has_oracle(subject) else [])]


def _episodes(
    subject: AuditSubject, player: Player, seeds: Sequence[int | None]
) -> list[tuple[object, ...]]:
    """The facts of one episode per seed, all in one environment."""
    env = subject.make()
    return [_facts(play(env, seed, player, SHORT)) for seed in seeds]


def _varied(
    subject: AuditSubject, plays: Sequence[tuple[object, ...]], what: str, guess: str
) -> Result:
    """The result for episodes of several seeds, those of each player after the other.

    what: that differs between them. guess: of the reason if nothing does.
    """
    # Episodes of two players differ anyway, so each is compared with those of its own.
    halves = (
        [plays] if not has_oracle(subject) else [plays[: len(plays) // 2], plays[len(plays) // 2 :]]
    )
    different = max(len(set(half)) for half in halves)
    evidence = {"episodes": len(halves[0]), "different": different}
    if different > 1:
        return "pass", f"{different} of {len(halves[0])} {what} differ", evidence
    if subject.statement.one_task or subject.is_match:
        return "unknown", "all episodes are the same task, as stated or as in a game", evidence
    if len(halves) == 1 and not legal_at_start(subject) and not single_turn(subject):
        return "unknown", "random texts find no difference; it has no legal actions", evidence
    return "fail", f"{len(halves[0])} {what} play the same episode: {guess}", evidence


def single_turn(subject: AuditSubject) -> bool:
    """True if any text ends the episode at once."""
    return len(play(subject.make(), 0, always("x"), 2).actions) == 1


def history_is_forgotten(subject: AuditSubject) -> Result:
    """An episode does not depend on the episodes that the environment has played before."""
    used = subject.make()
    for seed in within(range(6), subject.budget_s):
        # Of an environment that has played nothing.
        expected = _facts(play(subject.make(), seed, random_player(seed), SHORT))
        # A whole episode, one that goes wrong, and one that is left in its middle.
        play(used, seed + 1, random_player(seed + 1), SHORT)
        play(used, seed, always("\0"), SHORT)
        play(used, seed + 2, random_player(seed), 1)
        found = _facts(play(used, seed, random_player(seed), SHORT))
        if found != expected:
            evidence = {"new": str(expected)[:1000], "used": str(found)[:1000]}
            return "fail", f"seed {seed} plays another episode after earlier ones", evidence
    return "pass", "a used environment plays like a new one", {}


def threads_do_not_matter(subject: AuditSubject) -> Result:
    """Environments on several threads at once play like one alone."""
    seeds = list(range(THREADS * 2))
    alone = [_facts(play(subject.make(), seed, random_player(seed), SHORT)) for seed in seeds]
    # Made before the threads start: play is tested here, and not construction.
    envs = [subject.make() for _ in seeds]
    meeting = Barrier(THREADS)

    def one(seed: int) -> object:
        player, waits = random_player(seed), [True]

        def act(env: Env, observation: str) -> str:
            # All episodes begin before any continues: what they share is the last one's then.
            if waits:
                waits.clear()
                with suppress(BrokenBarrierError):
                    meeting.wait(MEETING_S)
            return player(env, observation)

        return _facts(play(envs[seed], seed, act, SHORT))

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
    # Most turns are shorter than the usual 5 ms, and would never be interrupted.
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _facts(found: Play) -> tuple[object, ...]:
    """All of an episode that must not change."""
    # Infos as text: NaN is unlike itself, and arrays have no single ==.
    return found.observations, found.rewards, ascii(found.infos), found.ended


SEED_CHECKS: dict[str, Callable[[AuditSubject], Result]] = {
    "seeds/differ": seeds_differ,
    "seeds/resets-differ": resets_without_seed_differ,
    "seeds/history": history_is_forgotten,
    "seeds/threads": threads_do_not_matter,
}
