"""Checks of episodes: seeds decide them, they end as stated, and harder ones are harder."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Barrier, BrokenBarrierError

from ludic_gym.audit.players import half_oracle, quoting, unsteady
from ludic_gym.audit.scores import earnings, error_of
from ludic_gym.audit.subject import (
    ENDLESS,
    AuditSubject,
    Check,
    Play,
    Player,
    Result,
    always,
    has_oracle,
    in_budget,
    legal_at_start,
    oracle,
    play,
    random_player,
)
from ludic_gym.envs.core.one_player import SolitaireEnv
from ludic_gym.offered import legal_actions
from ludic_gym.types import Env

THREADS = 4
SHORT = 20
MEETING_S = 2.0


def resets_without_seed_differ(subject: AuditSubject) -> Result:
    """Resets without a seed continue the random numbers: no episode comes again and again."""
    # Players that a hidden task answers differently; the episodes of each are compared.
    players = [random_player(0), *([oracle] if has_oracle(subject) else [])]
    different = 0
    for player in players:
        env = subject.make()
        # Seeded first, so that the audit repeats; that episode itself is left out.
        plays = [_facts(play(env, seed, player, SHORT)) for seed in (0, *[None] * 7)]
        different = max(different, len(set(plays[1:])))
    evidence = {"episodes": 7, "different": different}
    if different > 1:
        return "pass", f"{different} of 7 resets without a seed differ", evidence
    if subject.statement.tasks == 1:
        return "not judged", "all episodes are the same task, as stated", evidence
    ends_at_once = len(play(subject.make(), 0, always("x"), 2).actions) == 1
    if len(players) == 1 and not legal_at_start(subject) and not ends_at_once:
        return "not judged", "random texts find no difference; it has no legal actions", evidence
    summary = "7 resets without a seed play the same episode: do they start at one seed again?"
    return "fail", summary, evidence


def history_is_forgotten(subject: AuditSubject) -> Result:
    """An episode does not depend on the episodes that the environment has played before."""
    used = subject.make()
    for seed in in_budget(range(6), subject.budget_s):
        # Of an environment that has played nothing.
        expected = _facts(play(subject.make(), seed, random_player(seed), SHORT))
        # A whole episode, one that goes wrong, and one that is left in its middle.
        play(used, seed + 1, random_player(seed + 1), SHORT)
        play(used, seed, always("\0"), SHORT)
        play(used, seed + 2, random_player(seed), 1)
        facts = _facts(play(used, seed, random_player(seed), SHORT))
        if facts != expected:
            evidence = {"new": str(expected)[:1000], "used": str(facts)[:1000]}
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


def _facts(episode: Play) -> tuple[object, ...]:
    """All of an episode that must not change."""
    # Infos as text: NaN is unlike itself, and arrays have no single ==.
    return episode.observations, episode.rewards, ascii(episode.infos), episode.ended


SEED_CHECKS: dict[str, Check] = {
    "seeds/resets-differ": resets_without_seed_differ,
    "seeds/history": history_is_forgotten,
    "seeds/threads": threads_do_not_matter,
}


TEXTS = ("", "x", "\0", "x" * 20_000, "<answer></answer>", "1 2 3", "skip")
_NUMBERS = re.compile(
    r"\b(\d+)\s+(?:more\s+)?(?:turns|guesses|tries|attempts|rounds|steps|moves)\b"
)


def episodes_end(subject: AuditSubject) -> Result:
    """Every episode ends, whatever text is played again and again."""
    longest, never = dict[str, int](), list[str]()
    for name, player in in_budget(_stubborn(subject).items(), 2 * subject.budget_s):
        env = subject.make()
        for seed in range(2):
            episode = play(env, seed, player(seed), ENDLESS)
            longest[name] = max(longest.get(name, 0), len(episode.actions))
            if not episode.ended:
                never.append(name)
    evidence = {"turns": longest, "without end": never}
    texts = [name for name in never if name not in ("random", "first legal")]
    if never and not texts:
        return (
            "not judged",
            f"{never[0]} play continues for {ENDLESS} turns; none is stated",
            evidence,
        )
    if texts:
        return (
            "fail",
            f"{texts[0][:30]!r} can be played for {ENDLESS} turns without an end",
            evidence,
        )
    return "pass", f"after {max(longest.values())} turns at most", evidence


def limit_is_as_stated(subject: AuditSubject) -> Result:
    """The longest episode has the number of turns that the prompt, or the spec, states.

    "not judged" where the longest episode found is far from the number: players that never win may
    end their episodes otherwise.
    """
    env = subject.make()
    text, info = env.reset(seed=0)
    stated = {int(n) for n in _NUMBERS.findall(f"{info.get('system_prompt', '')}\n{text}")}
    if env.spec is not None and env.spec.max_episode_steps:
        stated.add(env.spec.max_episode_steps)
    inner = env.unwrapped
    if isinstance(inner, SolitaireEnv):
        stated = {inner.turns}
    if not stated:
        return "not judged", "neither the prompt nor the spec states a number of turns", {}
    lengths = {}
    for name, player in _stubborn(subject).items():
        env = subject.make()
        seeds = in_budget(range(4), subject.budget_s / 4)
        lengths[name] = max(len(play(env, seed, player(seed), ENDLESS).actions) for seed in seeds)
    # Texts alone, where each uses up a turn: a game may give turns back for good moves.
    longest = max(lengths[text] for text in TEXTS)
    longest = longest if isinstance(inner, SolitaireEnv) else max(lengths.values())
    evidence = {"stated": sorted(stated), "longest": longest, "turns": lengths}
    if longest in stated:
        return "pass", f"{longest} turns, as stated", evidence
    # One more or less is an error of counting; any other length may have reasons of its own.
    if isinstance(inner, SolitaireEnv) or {longest - 1, longest + 1} & stated:
        return "fail", f"{sorted(stated)} turns are stated, the longest has {longest}", evidence
    return "not judged", f"{sorted(stated)} are stated, the longest episode has {longest}", evidence


def levels_are_ordered(subject: AuditSubject) -> Result:
    """On a harder level no baseline does better: random play, half oracle, oracle."""
    name, values = subject.statement.levels
    if len(values) < 2:
        return "not judged", "no levels are stated: --levels NAME=EASY,...,HARD", {}
    players: dict[str, Callable[[int], Player]] = {"random": random_player}
    if has_oracle(subject):
        players |= {"half oracle": half_oracle, "oracle": lambda seed: oracle}
    rates, turns = dict[str, list[float]](), dict[str, list[float]]()
    for value in values:
        level = replace(subject, kwargs={**subject.kwargs, name: value})
        for player, make in players.items():
            plays = level.plays(make)
            rates.setdefault(player, []).append(earnings(plays).success)
            turns.setdefault(player, []).append(sum(len(p.actions) for p in plays) / len(plays))
    evidence = {"levels": list(values), "success": rates, "turns": turns}
    for player, means in rates.items():
        for i in range(1, len(means)):
            slack = 4 * error_of((means[i] + means[i - 1]) / 2, subject.episodes)
            if means[i] > means[i - 1] + slack:
                summary = (
                    f"{player} play succeeds in {means[i - 1]:.0%} with {name}={values[i - 1]!r}"
                )
                return "fail", f"{summary}, in {means[i]:.0%} with {values[i]!r}", evidence
    # A level may also be harder only by taking more turns.
    flat = all(max(means) - min(means) < 0.05 for means in rates.values())
    longer = any(means == sorted(means) and means[-1] > means[0] for means in turns.values())
    if flat and not longer:
        return "not judged", "no baseline tells the levels apart", evidence
    return "pass", f"{len(values)} levels of {name}", evidence


def _stubborn(subject: AuditSubject) -> dict[str, Callable[[int], Player]]:
    """Players of one text, of quotes, of the first legal action, and of random ones."""

    def one_text(text: str) -> Callable[[int], Player]:
        return lambda seed: always(text)

    def first_legal(env: Env, _: str) -> str:
        return next(iter(legal_actions(env)), "x")

    text, info = subject.make().reset(seed=0)
    players = {text: one_text(text) for text in TEXTS}
    if not legal_at_start(subject):
        # A quote may name a legal action, which is then no other than the first one.
        players |= quoting(str(info.get("system_prompt", "")), str(text)) | unsteady()
    return players | {"random": random_player, "first legal": lambda seed: first_legal}


LIMIT_CHECKS: dict[str, Check] = {
    "limits/end": episodes_end,
    "limits/stated": limit_is_as_stated,
    "levels/ordered": levels_are_ordered,
}
