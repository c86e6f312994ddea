"""InstructionFollowing: texts under constraints that a program can verify."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from ludic_gym.envs.core.base import Info, Turn, between, checked_choice, checked_range, end, pick
from ludic_gym.envs.core.levels import Split
from ludic_gym.envs.core.question import Question, QuestionEnv
from ludic_gym.envs.questions.model_text import STARTS, model_text
from ludic_gym.envs.questions.topics import LEAST, TOPICS, is_on_topic
from ludic_gym.graders.constraints import (
    KINDS,
    Constraint,
    grade_constraints,
    kept,
    read,
    wording,
    written,
)

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
    - Reward: 1 if all constraints are met, else 0 (component "kept"); or see `reward`.
    - Info at the end: see `QuestionEnv`; "rule" names the constraints that are not met, or is
      "off topic"; "topic" is the topic. A success meets all constraints and is on topic.

    Args:
        constraints: number of constraints, 1 to 6.
        reward: "all", or "fraction" for the share of constraints met, one component per kind.
        loose: also accept a text that meets them without its first line, its last line or its
            asterisks.
        split: "train" and "test" have no task in common; one in five is in "test".
        render_mode: "ansi", "html" or None.

    ```text
    Write a note about baking bread.
    - Use at most 84 words.
    - Do without any commas.
    > Mix flour and water. Wait for a day. Bake it until it sounds hollow.      (reward 1)
    ```
    """

    prompt = "Write the text that is asked for. Keep every rule. Reply with nothing but the text."

    def __init__(
        self,
        constraints: int = 3,
        reward: Literal["all", "fraction"] = "all",
        loose: bool = False,
        render_mode: str | None = None,
        *,
        split: Split = "all",
    ) -> None:
        super().__init__(render_mode, split=split)
        self._count = checked_range("constraints", constraints, 1, MOST)
        self._is_shared = checked_choice("reward", reward, ("all", "fraction")) == "fraction"
        self._loose = loose

    def ask(self, options: Mapping[str, Any]) -> Question:
        """Draw a topic and constraints."""
        rng = self.np_random
        constraints = drawn(rng, self._count)
        rules = "\n".join(f"- {wording(constraint)}" for constraint in constraints)
        form, topic = pick(rng, FORMS), pick(rng, tuple(TOPICS))
        self.about["topic"] = topic
        text = f"Write {form} about {topic}.\n{rules}"
        return Question(text, written(constraints))

    def turn(self, action: str) -> Turn:
        """Grade the text and end the episode."""
        truth = self.question.truth
        constraints = read(truth)
        grade = grade_constraints(action, truth, loose=self._loose)
        on_topic = is_on_topic(grade.answer or "", self.about["topic"])
        success, rule = grade.correct and on_topic, grade.rule
        if grade.correct and not on_topic:
            rule = "off topic"
        parts: Info = {"kept": success}
        if self._is_shared:
            # A text that repeats a constraint, or is a template, would earn its share by accident.
            given = grade.answer if grade.answer and rule != "echo" and on_topic else ""
            held = kept(given, constraints, loose=self._loose)
            parts = {c.kind: h / len(held) for c, h in zip(constraints, held, strict=True)}
        self.verdict = f"{action}\n\n{rule}"
        info = {"answer": grade.answer or "", "rule": rule, "truth": truth, **self.about}
        return end(success=success, info=info, **parts)

    def best_action(self) -> str:
        """A text that meets all constraints, with words of the topic."""
        return model_text(read(self.question.truth), TOPICS[self.about["topic"]][:LEAST])


def drawn(rng: np.random.Generator, count: int) -> list[Constraint]:
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
    count = between(rng, *COUNTS[kind]) if kind in COUNTS else 0
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
