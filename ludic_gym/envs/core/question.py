"""Environments that ask one question and grade one answer."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ludic_gym.data.load import Origin
from ludic_gym.envs.core.base import Info, TextEnv, Turn, ending, pick
from ludic_gym.errors import NoOracle
from ludic_gym.graders.extract import Grade

Grader = Callable[[str, str], Grade]


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the answer that the grader compares with."""

    text: str
    truth: str


class QuestionEnv(TextEnv):
    """Ask a question, grade the answer, end: reward 1 if it is correct, else 0.

    The last info has "success", "answer" (what the grader took for it, "" if nothing), "rule" (how
    the grader found it) and "truth". The last observation is empty.
    """

    prompt: str
    grade: ClassVar[Grader]
    _question: Question

    @abstractmethod
    def _ask(self, options: Mapping[str, Any]) -> tuple[Question, Info]:
        """The next question, and what the first info says besides the system prompt."""

    def _start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        self._question, info = self._ask(options)
        self._verdict = ""
        return self._question.text, {"system_prompt": self.prompt, **info}

    def _advance(self, action: str) -> Turn:
        grade = self._grade_of(action)
        reward = float(grade.correct)
        info = ending(success=grade.correct, correct=reward)
        info["answer"] = grade.answer or ""
        info["rule"] = grade.rule
        info["truth"] = self._question.truth
        self._verdict = f"\n\n{action}\n\n{'correct' if grade.correct else 'wrong'}"
        return "", reward, True, False, info

    def _grade_of(self, action: str) -> Grade:
        return type(self).grade(action, self._question.truth)

    def _picture(self) -> str:
        return self._question.text + self._verdict

    def oracle_action(self) -> str:
        """The truth. Raises NoOracle when no question is open."""
        if not self._running:
            raise NoOracle(f"{type(self).__name__}: no question is open; call reset() first")
        return self._question.truth


class DatasetEnv(QuestionEnv):
    """Questions from the rows of a data set.

    Every info says the "row", the "split" ("sample" for the bundled sample) and the "data": the
    name and the hash of the rows, such as "openai/gsm8k:main@0123456789abcdef".
    """

    def __init__(
        self, questions: Sequence[Question], origin: Origin, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self.origin = origin
        self._questions = questions
        self._rows = range(len(questions))
        self.num_rows = len(questions)
        self._about: Info = {"row": 0, "split": origin.split, "data": str(origin)}

    def __str__(self) -> str:
        where = self.origin.split if self.origin.split == "sample" else str(self.origin)
        return f"<{type(self).__name__} {where}, {self.num_rows} rows>"

    __repr__ = __str__

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Copies share the rows, which do not change: thousands of them would take milliseconds.
        memo[id(self._questions)] = self._questions
        twin = memo[id(self)] = type(self).__new__(type(self))
        vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    def _ask(self, options: Mapping[str, Any]) -> tuple[Question, Info]:
        row = self._row(options)
        if row is None:
            row = pick(self.np_random, self._rows)
        self._about["row"] = row
        return self._questions[row], dict(self._about)

    def _advance(self, action: str) -> Turn:
        text, reward, terminated, truncated, info = super()._advance(action)
        return text, reward, terminated, truncated, {**info, **self._about}
