"""Tasks of RepoRepair: bugs of a package, and the issue that reports them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ludic_gym.envs.core.base import pick
from ludic_gym.envs.worlds.repair.judge import expected_result
from ludic_gym.envs.worlds.repair.packages import Bug, Shown, mutations, package, reported_bugs

OPENINGS = (
    "The package {name} gives a wrong result.",
    "I use the package {name}, and one of its results surprised me.",
    "There is a bug in {name}: what I get is not what its documentation says.",
    "Since the last release of {name}, this no longer works.",
)


@dataclass(frozen=True, slots=True)
class Task:
    """Bugs of one package, in different files, and the text of the issue."""

    package: str
    bugs: tuple[Bug, ...]
    text: str


def drawn_task(level: str, split: str, rng: np.random.Generator) -> Task:
    """A task of the level whose bugs are all in the split. level, split: see `RepoRepairEnv`."""
    bugs = pick(rng, choices(level, split))
    texts = []
    for bug in bugs:
        if bug.issue:
            texts.append(f"An issue of the package {bug.package}:\n\n{bug.issue}")
        else:
            opening = pick(rng, OPENINGS).format(name=bug.package)
            # With two bugs the wrong result of a statement may be another one.
            texts.append(f"{opening}\n{shown_text(bug, pick(rng, bug.shown), len(bugs) == 1)}")
    return Task(bugs[0].package, bugs, "\n\n".join(texts))


@cache
def choices(level: str, split: str) -> tuple[tuple[Bug, ...], ...]:
    """All combinations of bugs of a level, in a split."""
    reported = [bug for bug in reported_bugs() if in_split(bug, split)]
    mutated = [bug for bug in mutations() if in_split(bug, split)]
    if level == "easy":
        return tuple((bug,) for bug in mutated)
    if level == "medium":
        return tuple((bug,) for bug in reported)
    return tuple(
        (one, other)
        for one in reported
        for other in mutated
        if one.package == other.package
        and one.path != other.path
        # A statement that fails because of the other bug would be no sign of this one.
        and not {shown.case for shown in other.shown} & {*one.fails}
    )


def in_split(bug: Bug, split: str) -> bool:
    """True if the bug belongs to the split."""
    return split == "all" or bug.held_out == (split == "test")


def shown_text(bug: Bug, shown: Shown, with_result: bool) -> str:
    """The statements that lead to a wrong result, and the result that it should be."""
    original = package(bug.package)
    case = original.cases[shown.case]
    sources = [*original.setup, *(one.source for one in case[: shown.example + 1])]
    wrong = f"It gives:\n\n{_indented(shown.result)}\n\n" if with_result else ""
    return (
        f"I run this:\n\n{_indented(''.join(sources))}\n\n{wrong}"
        f"The last statement should give:\n\n{_indented(expected_result(case[shown.example]))}"
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.rstrip("\n").split("\n"))
