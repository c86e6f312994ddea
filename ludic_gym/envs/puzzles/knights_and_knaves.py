"""Knights and Knaves: speakers who always tell the truth or always lie (R. Smullyan, 1978)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.base import checked_range, pick
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.question import Question, QuestionEnv, rows_if_given
from ludic_gym.errors import DataError
from ludic_gym.graders.extract import Grade, extract

NAMES = ("Ann", "Bob", "Cy", "Dee", "Eve", "Fay")
KNIGHT, KNAVE = "knight", "knave"
OTHER = {KNIGHT: KNAVE, KNAVE: KNIGHT}
# True for each speaker who is a knight.
Kinds = tuple[bool, ...]
# A sentence, and the function that evaluates it.
Claim = tuple[str, Callable[[Kinds], bool]]

_KIND = re.compile(
    r"(?P<no>(\bnot|n['\u2019]t|\bno|\bnever)\s+(a\s+)?)?\b(?P<kind>knight|knave)s?\b",
    re.IGNORECASE,
)


def grade_kinds(text: str, truth: str) -> Grade:
    """Grade a list of kinds: they must be those of `truth` ("knight, knave"), in this order.

    Other words of the answer ("Ann is a") are ignored. "Not a knight" is a knave.
    """
    answer, rule = extract(text)
    if answer is None:
        return Grade(False, None, rule)
    # The other kind after "not".
    named = ((match["kind"].lower(), match["no"]) for match in _KIND.finditer(answer))
    kinds = ", ".join(OTHER[kind] if no else kind for kind, no in named)
    return Grade(kinds == truth, answer, rule)


class KnightsAndKnavesEnv(QuestionEnv):
    """Find the knights, who always tell the truth, and the knaves, who always lie.

    Each person makes one statement. There is exactly one solution.

    - Observation: the statements.
    - Action: the kinds in the order of the speakers, in <answer></answer> tags.
    - Reward and info: see `QuestionEnv`.

    Args:
        people: number of people, 2 to 6.
        split: part of the generated tasks; with `data`, the split of a folder or a data set.
        data: rows in place of generated tasks: a file, a folder with a file per split, or a hub id.
        fields: columns of "question" and "kinds" (true for a knight, in the order of the question)
            of another layout than that of Xie et al. 2024, arXiv:2410.23123: see `load_rows`.
        on_bad_row: "skip" leaves out rows that have none.
    """

    prompt = (
        "Each speaker is either a knight, who always tells the truth, or a knave, who always lies. "
        "Find out who is what. Give the kinds in the order of the speakers in tags, such as "
        "<answer>knight, knave</answer>."
    )
    grade = grade_kinds

    def __init__(
        self,
        people: int = 3,
        render_mode: str | None = None,
        *,
        split: Split = "all",
        data: str | None = None,
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
    ) -> None:
        rows = rows_if_given(
            data, task_of, kind="knights", split=split, fields=fields, on_bad_row=on_bad_row
        )
        super().__init__(render_mode, split=split, rows=rows)
        self._people = checked_range("people", people, 2, len(NAMES))

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The puzzle of a row; or draw claims until they have exactly one solution."""
        if self.origin is not None:
            return self.row_question(options)
        # Rejection keeps all sets of claims with one solution equally likely.
        while True:
            made = [pick(self.np_random, claims(self._people, i)) for i in range(self._people)]
            if len(solved := solutions(made)) == 1:
                break
        lines = (f'{name} says: "{text}."' for name, (text, _) in zip(NAMES, made, strict=False))
        return Question("\n".join(lines), in_words(solved[0]))


def in_words(kinds: Sequence[bool]) -> str:
    """The kinds as "knight, knave"."""
    return ", ".join(KNIGHT if knight else KNAVE for knight in kinds)


def task_of(row: Row) -> Question:
    """The puzzle of a row. Raises DataError without a list of truth values."""
    kinds = row.fields.get("kinds")
    if not isinstance(kinds, list) or not kinds or not all(isinstance(k, bool) for k in kinds):
        raise DataError(f"{row.where}: field 'kinds' must be a list of true and false: {kinds!r}")
    return Question(text_field(row, "question"), in_words(kinds))


def solutions(made: list[Claim]) -> list[Kinds]:
    """All assignments of kinds for which knights' claims are true and knaves' claims false.

    made: the claim of each speaker.
    """
    return [
        kinds
        for kinds in product((True, False), repeat=len(made))
        if all(is_true(kinds) == kind for (_, is_true), kind in zip(made, kinds, strict=True))
    ]


@cache
def claims(people: int, speaker: int) -> tuple[Claim, ...]:
    """All claims that the speaker can make about `people` people."""
    others = [i for i in range(people) if i != speaker]
    # About the speaker and another, or about two others in one order: each pair once.
    pairs = [(i, j) for i in others for j in range(people) if i != j and (j == speaker or i < j)]
    return (
        *(claim for i in others for claim in about_one(i)),
        *(claim for i, j in pairs for claim in about_two(i, j)),
        *about_all(people),
    )


def about_one(i: int) -> tuple[Claim, ...]:
    """Claims about one person."""
    return (
        (f"{NAMES[i]} is a knight", lambda kinds: kinds[i]),
        (f"{NAMES[i]} is a knave", lambda kinds: not kinds[i]),
    )


def about_two(i: int, j: int) -> tuple[Claim, ...]:
    """Claims about two people."""
    a, b = NAMES[i], NAMES[j]
    return (
        (f"{a} and {b} are of the same kind", lambda kinds: kinds[i] == kinds[j]),
        (f"{a} and {b} are of different kinds", lambda kinds: kinds[i] != kinds[j]),
        (f"At least one of {a} and {b} is a knave", lambda kinds: not (kinds[i] and kinds[j])),
    )


def about_all(people: int) -> tuple[Claim, ...]:
    """Claims about all people."""
    return tuple(
        # `n=n` binds the number now: a lambda would see the last one.
        (f"Of all of us, the number of knights is {n}", lambda kinds, n=n: sum(kinds) == n)
        for n in range(people)
    )
