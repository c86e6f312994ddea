"""Knights and Knaves: who tells the truth (R. Smullyan, 1978)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any

from ludic_gym.envs.core.base import Info, pick
from ludic_gym.envs.core.question import Question, QuestionEnv
from ludic_gym.envs.core.solitaire import checked_range
from ludic_gym.graders.extract import Grade, extract

NAMES = ("Ann", "Bob", "Cy", "Dee", "Eve", "Fay")
KNIGHT, KNAVE = "knight", "knave"
# Whether each person is a knight.
Kinds = tuple[bool, ...]
Claim = tuple[str, Callable[[Kinds], bool]]

_KIND = re.compile(r"\b(knights?|knaves?)\b", re.IGNORECASE)


def grade_kinds(text: str, truth: str) -> Grade:
    """Whether the answer in `text` names the kinds of `truth` ("knight, knave") in this order.

    Whatever else the answer says ("Ann is a") does not matter.
    """
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    kinds = ", ".join(kind.lower() for kind in _KIND.findall(answer))
    return Grade(kinds == truth, answer, rule)


class KnightsAndKnavesEnv(QuestionEnv):
    """Find out who is a knight, who always tells the truth, and who a knave, who always lies.

    people: how many there are; each says one thing. There is exactly one solution.

    Observation: what they say. Action: their kinds in order, in <answer></answer> tags.

        Ann says: "Bob is a knave."
        Bob says: "Ann and Cy are of the same kind."
        Cy says: "Ann is a knight."
    <answer>knave, knight, knave</answer>             (reward 1)
    """

    prompt = (
        "Everybody is either a knight, who always tells the truth, or a knave, who always lies. "
        "Who is what? Give the kinds in the order of the speakers in <answer></answer> tags, "
        "such as <answer>knight, knave</answer>."
    )
    grade = grade_kinds

    def __init__(self, people: int = 3, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self._people = checked_range("people", people, 2, len(NAMES))

    def _ask(self, options: Mapping[str, Any]) -> tuple[Question, Info]:
        self._row(options)
        while True:
            said = [pick(self.np_random, claims(self._people, i)) for i in range(self._people)]
            if len(found := solutions(said)) == 1:
                break
        lines = (f'{name} says: "{text}."' for name, (text, _) in zip(NAMES, said, strict=False))
        truth = ", ".join(KNIGHT if knight else KNAVE for knight in found[0])
        return Question("\n".join(lines), truth), {}


def solutions(said: list[Claim]) -> list[Kinds]:
    """Who may be what, if knights say what is true and knaves what is false."""
    return [
        kinds
        for kinds in product((True, False), repeat=len(said))
        if all(is_true(kinds) == kind for (_, is_true), kind in zip(said, kinds, strict=True))
    ]


@cache
def claims(people: int, speaker: int) -> tuple[Claim, ...]:
    """All that one of so many people may say."""
    others = [i for i in range(people) if i != speaker]
    pairs = [(i, j) for i in others for j in range(people) if i != j and (j == speaker or i < j)]
    return (
        *(claim for i in others for claim in about_one(i)),
        *(claim for i, j in pairs for claim in about_two(i, j)),
        *about_all(people),
    )


def about_one(i: int) -> tuple[Claim, ...]:
    """What may be said about one person."""
    return (
        (f"{NAMES[i]} is a knight", lambda kinds: kinds[i]),
        (f"{NAMES[i]} is a knave", lambda kinds: not kinds[i]),
    )


def about_two(i: int, j: int) -> tuple[Claim, ...]:
    """What may be said about two."""
    a, b = NAMES[i], NAMES[j]
    return (
        (f"{a} and {b} are of the same kind", lambda kinds: kinds[i] == kinds[j]),
        (f"{a} and {b} are of different kinds", lambda kinds: kinds[i] != kinds[j]),
        (f"At least one of {a} and {b} is a knave", lambda kinds: not (kinds[i] and kinds[j])),
    )


def about_all(people: int) -> tuple[Claim, ...]:
    """What may be said about all."""
    return tuple(
        (f"Of all of us, the number of knights is {n}", lambda kinds, n=n: sum(kinds) == n)
        for n in range(people)
    )
