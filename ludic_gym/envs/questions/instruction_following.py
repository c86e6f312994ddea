"""InstructionFollowing: texts about a topic under constraints that a program can verify."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from ludic_gym.envs.core.base import Turn, checked_range, end, pick, random_int
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.question import Question, QuestionEnv
from ludic_gym.errors import NoOracle
from ludic_gym.graders.constraints import (
    KINDS,
    Constraint,
    constraints_json,
    constraints_kept,
    grade_constraints,
    read_constraints,
    wording,
)

# Topic -> beginnings of words that a text about it uses and its name does not contain.
TOPICS: Mapping[str, tuple[str, ...]] = {
    topic: tuple(stems.split())
    for topic, stems in tomllib.loads(
        (Path(__file__).parents[1] / "data" / "topics.toml").read_text(encoding="utf-8")
    ).items()
}
LEAST = 2
# A text that names many topics is about none of them.
SHARE = 1 / 3
_WORD = re.compile(r"[a-z]+")


def is_on_topic(text: str, topic: str) -> bool:
    """True if the text uses words of the topic, and not as many of other topics.

    It needs two of the words in `TOPICS[topic]`, and they must be a third of all such words in it.
    So a fixed text is about three topics at most, and one that repeats the task about none.
    """
    words = set(_WORD.findall(text.casefold()))
    used = {
        stem
        for stems in TOPICS.values()
        for stem in stems
        if any(word.startswith(stem) for word in words)
    }
    topical = used & set(TOPICS[topic])
    return len(topical) >= LEAST and len(topical) >= SHARE * len(used)


STARTS = ("Here is what happened", "It began like this", "Let us be brief")
FILLER = (
    "this", "is", "not", "so", "hard", "to", "do", "but", "it", "takes", "some", "time", "and",
    "a", "little", "patience", "so", "we", "start", "soon", "then", "look", "at", "what", "comes",
    "next", "to", "see", "how", "the", "rest", "turns", "out",
)  # fmt: skip
# Numbers of filler sentences to try, and numbers of words in each.
SENTENCES = range(13)
LENGTHS = (3, 5, 7, 9, 11, 13, 16, 20, 28, 40, 60)

By = Mapping[str, Constraint]
Lines = Mapping[str, Callable[[Constraint], Sequence[str]]]
# Kind -> the lines that meet a constraint, in the order of the text.
OPENINGS: Lines = {
    "starts_with": lambda c: c.texts[:1],
    "title": lambda c: ["<<plain words>>"],
    "sections": lambda c: [f"Section {i + 1}" for i in range(c.count)],
    "bullets": lambda c: ["* one more thing"] * c.count,
    "keywords": lambda c: [" ".join(c.texts)],
    "frequency": lambda c: [" ".join(c.texts * c.count)],
    "placeholders": lambda c: [" ".join(["[name]"] * c.count)],
}
CLOSINGS: Lines = {
    "postscript": lambda c: ["P.S. take care"],
    "ends_with": lambda c: c.texts[:1],
}


def model_text(constraints: Sequence[Constraint], words: Sequence[str] = ()) -> str:
    """The first text, from short to long, that meets all constraints and has the words.

    Raises NoOracle if none does.
    """
    by = {constraint.kind: constraint for constraint in constraints}
    for count, length in product(SENTENCES, LENGTHS):
        text = assemble(by, count, length, words)
        if all(constraints_kept(text, constraints)):
            return text
    raise NoOracle(f"no text is known that meets all of {constraints}")


def assemble(by: By, count: int, length: int, words: Sequence[str] = ()) -> str:
    """The pieces that the constraints need, and `count` sentences of `length` words."""
    sentences = [f"{' '.join(islice(cycle(FILLER), i, i + length))}." for i in range(count)]
    topical = [" ".join(words)] if words else []
    lines = [*pieces(OPENINGS, by), *topical, *sentences, *pieces(CLOSINGS, by)]
    if "json" in by:
        text = json.dumps({"text": " ".join(lines)})
    else:
        text = in_paragraphs(lines, by["paragraphs"].count if "paragraphs" in by else 1)
    if "quoted" in by:
        text = f'"{text}"'
    # Last, because the case of all pieces must change.
    text = text.lower() if "lower_case" in by else text
    return text.upper() if "upper_case" in by else text


def pieces(lines: Lines, by: By) -> Iterator[str]:
    """The lines of the kinds that are wanted."""
    for kind, made in lines.items():
        if kind in by:
            yield from made(by[kind])


def in_paragraphs(lines: Sequence[str], count: int) -> str:
    """The lines in `count` paragraphs, with filler if there are too few lines."""
    # Added in front, because the last lines may be an ending that must stay last.
    lines = [*["and so"] * (count - len(lines)), *lines]
    head, tail = lines[: count - 1], lines[count - 1 :]
    return "\n\n".join([*head, "\n".join(tail)])


MOST = 6
FORMS = ("a note", "a short report", "a letter", "a few lines", "advice", "an announcement")
# Words to use or to avoid; `model_text` contains none of them.
WORDS = (
    "window", "garden", "silver", "engine", "forest", "bottle", "winter", "market", "letter",
    "yellow", "copper", "island", "basket", "candle", "thunder", "pocket", "ladder", "feather",
)  # fmt: skip
ENDS = ("That is all for now.", "We will see you there.", "Nothing more is needed.")
LETTERS = ("t", "o", "s", "e")
# Kind of constraint -> lowest and highest count.
COUNTS: Mapping[str, tuple[int, int]] = {
    "words_at_least": (30, 120),
    "words_at_most": (80, 150),
    "sentences_at_least": (3, 8),
    "sentences_exactly": (4, 8),
    "paragraphs": (2, 5),
    "frequency": (2, 4),
    "letter_at_least": (8, 15),
    "bullets": (2, 5),
    "placeholders": (2, 3),
    "sections": (2, 3),
}
_SHAPES = ("bullets", "title", "placeholders", "postscript", "quoted", "sections", "no_commas")
_LENGTHS = ("sentences_at_least", "sentences_exactly", "paragraphs")
# Pairs of kinds that contradict each other, or make no sense together.
CLASHES: tuple[set[str], ...] = (
    {"words_at_least", "words_at_most"},
    {"sentences_at_least", "sentences_exactly"},
    {"lower_case", "upper_case"},
    {"lower_case", "postscript"},
    {"ends_with", "postscript"},
    *({case, "sections"} for case in ("lower_case", "upper_case")),
    *({"quoted", other} for other in ("starts_with", "ends_with", "sections", "bullets")),
    *({"json", other} for other in (*_SHAPES, *_LENGTHS, "starts_with", "ends_with")),
)


class InstructionFollowingEnv(QuestionEnv):
    """Write a short text under verifiable constraints (Zhou et al. 2023, arXiv:2311.07911).

    The constraints are drawn from 21 kinds that can be met together: counts of words, sentences
    and paragraphs, words to use or to avoid, case, commas, beginnings and ends, JSON, bullet
    points, titles, placeholders, postscripts, quotation marks and sections.

    - Observation: a topic and the constraints.
    - Action: the text. A text that repeats a constraint, or is not about the topic, earns nothing.
      A program recognises a topic by two of about ten words that belong to it; see `is_on_topic`.
    - Reward: 1 if all constraints are met, else 0 (component "kept").
    - Info at the end: see `QuestionEnv`; "rule" names the constraints that are not met, or is
      "off topic"; "topic" is the topic. A success meets all constraints and is on topic.

    Args:
        constraints: number of constraints, 1 to 6.
    """

    prompt = "Write the text that is asked for. Keep every rule. Reply with nothing but the text."

    def __init__(
        self, constraints: int = 3, render_mode: str | None = None, *, split: Split = "all"
    ) -> None:
        super().__init__(render_mode, split=split)
        self._count = checked_range("constraints", constraints, 1, MOST)

    def ask(self, options: Mapping[str, Any]) -> Question:
        """Draw a topic and constraints."""
        rng = self.np_random
        constraints = draw_constraints(rng, self._count)
        rules = "\n".join(f"- {wording(constraint)}" for constraint in constraints)
        form, topic = pick(rng, FORMS), pick(rng, tuple(TOPICS))
        self.about["topic"] = topic
        text = f"Write {form} about {topic}.\n{rules}"
        return Question(text, constraints_json(constraints))

    def turn(self, action: str) -> Turn:
        """Grade the text and end the episode."""
        truth = self.question.truth
        grade = grade_constraints(action, truth)
        on_topic = is_on_topic(grade.answer or "", self.about["topic"])
        success, rule = grade.correct and on_topic, grade.rule
        if grade.correct and not on_topic:
            rule = "off topic"
        self.verdict = f"{action}\n\n{rule}"
        info = {"answer": grade.answer or "", "rule": rule, "truth": truth, **self.about}
        return end(success=success, info=info, kept=success)

    def best_action(self) -> str:
        """A text that meets all constraints, with words of the topic."""
        return model_text(
            read_constraints(self.question.truth), TOPICS[self.about["topic"]][:LEAST]
        )


def draw_constraints(rng: np.random.Generator, count: int) -> list[Constraint]:
    """`count` constraints of different kinds that can be met together."""
    kinds: list[str] = []
    names = tuple(KINDS)
    for i in rng.permutation(len(names)):
        # In random order, and each kind only if it agrees with those before: always possible, no
        # retries.
        if len(kinds) < count and not any({kind, names[i]} in CLASHES for kind in kinds):
            kinds.append(names[i])
    # One order for all constraints, so that no word is wanted and forbidden.
    order = [WORDS[i] for i in rng.permutation(len(WORDS))]
    return [specific(rng, kind, order) for kind in kinds]


def specific(rng: np.random.Generator, kind: str, unused: list[str]) -> Constraint:
    """A constraint of the kind; its words are removed from `unused`."""
    count = random_int(rng, *COUNTS[kind]) if kind in COUNTS else 0
    texts: tuple[str, ...] = ()
    if kind in ("keywords", "forbidden"):
        texts = (unused.pop(), unused.pop())
    elif kind == "frequency":
        texts = (unused.pop(),)
    elif kind in PHRASES:
        texts = (pick(rng, PHRASES[kind]),)
    return Constraint(kind, count, texts)


PHRASES: Mapping[str, tuple[str, ...]] = {
    "starts_with": STARTS,
    "ends_with": ENDS,
    "letter_at_least": LETTERS,
}
