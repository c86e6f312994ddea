"""Checks of lengths and levels: every episode ends, in the stated turns, and harder is harder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ludic_gym.audit.scores import earned, error_of, half_oracle
from ludic_gym.audit.subject import (
    ENDLESS,
    AuditSubject,
    Player,
    Result,
    always,
    has_oracle,
    legal_actions,
    oracle,
    play,
    random_player,
    within,
)
from ludic_gym.envs.core.solitaire import SolitaireEnv
from ludic_gym.types import Env

TEXTS = ("", "x", "\0", "x" * 20_000, "<answer></answer>", "1 2 3", "skip")
_NUMBERS = re.compile(
    r"\b(\d+)\s+(?:more\s+)?(?:turns|guesses|tries|attempts|rounds|steps|moves)\b"
)


def episodes_end(subject: AuditSubject) -> Result:
    """Every episode ends, whatever text is played again and again."""
    longest, never = dict[str, int](), list[str]()
    for name, player in within(_stubborn(subject).items(), 2 * subject.budget_s):
        env = subject.make()
        for seed in range(2):
            found = play(env, seed, player(seed), ENDLESS)
            longest[name] = max(longest.get(name, 0), len(found.actions))
            if not found.ended:
                never.append(name)
    evidence = {"turns": longest, "without end": never}
    texts = [name for name in never if name not in ("random", "first legal")]
    if never and not texts:
        return "unknown", f"{never[0]} play continues for {ENDLESS} turns; none is stated", evidence
    if texts:
        return (
            "fail",
            f"{texts[0][:30]!r} can be played for {ENDLESS} turns without an end",
            evidence,
        )
    return "pass", f"after {max(longest.values())} turns at most", evidence


def limit_is_as_stated(subject: AuditSubject) -> Result:
    """The longest episode has the number of turns that the prompt, or the spec, states.

    "unknown" where the longest episode found is far from the number: players that never win may end
    their episodes otherwise.
    """
    if subject.is_match:
        return "unknown", "a round of a match is a turn of each player", {}
    env = subject.make()
    text, info = env.reset(seed=0)
    stated = {int(n) for n in _NUMBERS.findall(f"{info.get('system_prompt', '')}\n{text}")}
    if env.spec is not None and env.spec.max_episode_steps:
        stated.add(env.spec.max_episode_steps)
    inner = env.unwrapped
    if isinstance(inner, SolitaireEnv):
        stated = {inner.turns}
    if not stated:
        return "unknown", "neither the prompt nor the spec states a number of turns", {}
    lengths = {name: _longest(subject, player) for name, player in _stubborn(subject).items()}
    # Texts alone, where each uses up a turn: a game may give turns back for good moves.
    longest = max(lengths[text] for text in TEXTS)
    longest = longest if isinstance(inner, SolitaireEnv) else max(lengths.values())
    evidence = {"stated": sorted(stated), "longest": longest, "turns": lengths}
    if longest in stated:
        return "pass", f"{longest} turns, as stated", evidence
    # One more or less is an error of counting; any other length may have reasons of its own.
    if isinstance(inner, SolitaireEnv) or {longest - 1, longest + 1} & stated:
        return "fail", f"{sorted(stated)} turns are stated, the longest has {longest}", evidence
    return "unknown", f"{sorted(stated)} are stated, the longest episode has {longest}", evidence


def levels_are_ordered(subject: AuditSubject) -> Result:
    """On a harder level no baseline does better: random play, half oracle, oracle."""
    name, values = subject.statement.levels
    if len(values) < 2:
        return "unknown", "no levels are stated: --levels NAME=EASY,...,HARD", {}
    players: dict[str, Callable[[int], Player]] = {"random": random_player}
    if has_oracle(subject):
        players |= {"half oracle": half_oracle, "oracle": lambda seed: oracle}
    rates, turns = dict[str, list[float]](), dict[str, list[float]]()
    for value in values:
        level = replace(subject, kwargs={**subject.kwargs, name: value})
        for player, make in players.items():
            plays = level.plays(make)
            rates.setdefault(player, []).append(earned(plays).success)
            turns.setdefault(player, []).append(sum(len(p.actions) for p in plays) / len(plays))
    evidence = {"levels": list(values), "success": rates, "turns": turns}
    for player, found in rates.items():
        for i in range(1, len(found)):
            slack = 4 * error_of((found[i] + found[i - 1]) / 2, subject.episodes)
            if found[i] > found[i - 1] + slack:
                summary = (
                    f"{player} play succeeds in {found[i - 1]:.0%} with {name}={values[i - 1]!r}"
                )
                return "fail", f"{summary}, in {found[i]:.0%} with {values[i]!r}", evidence
    # A level may also be harder only by taking more turns.
    flat = all(max(found) - min(found) < 0.05 for found in rates.values())
    longer = any(found == sorted(found) and found[-1] > found[0] for found in turns.values())
    if flat and not longer:
        return "unknown", "no baseline tells the levels apart", evidence
    return "pass", f"{len(values)} levels of {name}", evidence


def _longest(subject: AuditSubject, player: Callable[[int], Player]) -> int:
    """Turns of a player's longest episode."""
    env = subject.make()
    seeds = within(range(4), subject.budget_s / 4)
    return max(len(play(env, seed, player(seed), ENDLESS).actions) for seed in seeds)


def _stubborn(subject: AuditSubject) -> dict[str, Callable[[int], Player]]:
    """Players of one text, of the first legal action, and of random ones."""

    def one_text(text: str) -> Callable[[int], Player]:
        return lambda seed: always(text)

    def first_legal(env: Env, _: str) -> str:
        return next(iter(legal_actions(env)), "x")

    players = {text: one_text(text) for text in TEXTS}
    return players | {"random": random_player, "first legal": lambda seed: first_legal}


LIMIT_CHECKS: dict[str, Callable[[AuditSubject], Result]] = {
    "limits/end": episodes_end,
    "limits/stated": limit_is_as_stated,
    "levels/ordered": levels_are_ordered,
}
