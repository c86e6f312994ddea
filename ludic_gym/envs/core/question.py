"""QuestionEnv and DatasetEnv: one question, one graded answer."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import BadRows, OnBadRow, Origin, Rows, load_rows
from ludic_gym.data.row import Row
from ludic_gym.envs.core.base import Info, TextEnv, Turn, checked_choice, end, pick
from ludic_gym.envs.core.levels import SPLITS, Split, draw_in_split
from ludic_gym.errors import ConfigError, GraderError
from ludic_gym.graders.extract import Grade

Grader = Callable[[str, str], Grade]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the correct answer as its grader expects it."""

    text: str
    truth: str


Q = TypeVar("Q", bound=Question)


class QuestionEnv(TextEnv):
    """Episodes of one turn: a question, an answer, a grade.

    A subclass sets `prompt` and `grade` and writes `ask`.

    - Observation: the question; "" after the answer.
    - Reward: 1 for a correct answer, else 0 (component "correct").
    - Info: of rows, that of `DatasetEnv` in the first and the last one. At the end "answer"
      (extracted from the action, "" if none was found), "rule" (the extraction rule that matched)
      and "truth". If the grader reaches no verdict, the episode is truncated without the component
      "correct", and "error" and "grader_error" have the reason: rollouts report it as a failed
      episode, which is not trained on.

    Attributes:
        prompt: system prompt with the reply format.
        grade: function of an action and the truth that returns the grade.
        question: the question of the present episode.
        about: facts of the task, copied into the first and the last info.
        verdict: the answer and its grade, for `picture`; "" until the answer.
        origin: origin of the rows; None if questions are generated from the seed.
        bad_rows: rows of the data set that were left out: their number, and why the first ones.

    Args:
        split: part of generated questions.
        rows: the questions and their origin, as `load_rows` returns them; None if `ask` generates
            them. Otherwise it returns `row_question`.

    >>> from ludic_gym import grade_exact
    >>> class Capitals(QuestionEnv):
    ...     prompt, grade = "Reply with the name of the city.", grade_exact
    ...
    ...     def ask(self, options):
    ...         return pick(self.np_random, [Question("Capital of Peru?", "Lima")])
    >>> env = Capitals()
    >>> env.reset(seed=1)[0]
    'Capital of Peru?'
    >>> env.step("lima")[1]
    1.0
    """

    single_turn = True
    prompt: str
    grade: ClassVar[Grader]
    question: Question

    def __init__(
        self,
        render_mode: str | None = None,
        *,
        split: Split = "all",
        rows: Rows[Q] | None = None,
    ) -> None:
        super().__init__(render_mode)
        # Rows are of one split already.
        self._asked_split = "all" if rows else checked_choice("split", split, SPLITS)
        self.question = Question("", "")
        self.about: Info = {}
        self.verdict = ""
        self.origin = None if rows is None else rows.origin
        self.bad_rows = BadRows() if rows is None else rows.bad
        self._questions: Sequence[Question] = () if rows is None else rows.items
        if rows is not None:
            self.num_rows = len(rows)
            self.about = {
                "row": 0,
                "split": rows.origin.split,
                "data": str(rows.origin),
                "licence": rows.origin.licence,
            }

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Copies share the rows, which do not change: to copy thousands takes milliseconds.
        memo[id(self._questions)] = self._questions
        twin = memo[id(self)] = type(self).__new__(type(self))
        vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    @abstractmethod
    def ask(self, options: Mapping[str, Any]) -> Question:
        """Draw the question of a new episode.

        options: see `TextEnv.start`.
        """

    def row_question(self, options: Mapping[str, Any]) -> Question:
        """The question of the row that the option "row" names, or of one drawn uniformly."""
        row = options.get("row")
        if row is None:
            row = pick(self.np_random, range(len(self._questions)))
        # Results name the row, drawn or chosen, so that a failure can be played again.
        self.about["row"] = row
        return self._questions[row]

    def grade_action(self, action: str) -> Grade:
        """The grade of the action; by default that of `grade`."""
        # From the class: found on the instance, a plain function would be a bound method.
        return type(self).grade(action, self.question.truth)

    def task(self, question: Question) -> str:
        """A text that equal tasks have in common; it decides the split of generated questions."""
        return question.text

    def start(self, options: Mapping[str, Any]) -> tuple[str, Info]:
        """Ask a question of the split."""
        self.question = draw_in_split(lambda: self.ask(options), self._asked_split, self.task)
        self.verdict = ""
        return self.question.text, {"system_prompt": self.prompt, **self.about}

    def turn(self, action: str) -> Turn:
        """Grade the answer and end the episode."""
        try:
            grade = self.grade_action(action)
        except GraderError as error:
            return self.ungraded(error)
        self.verdict = f"{action}\n\n{'correct' if grade.correct else 'wrong'}"
        answer, truth = grade.answer or "", self.question.truth
        info = {"answer": answer, "rule": grade.rule, "truth": truth, **self.about}
        if grade.answer is None:
            info["illegal"] = True
        return end(success=grade.correct, info=info, correct=grade.correct)

    def ungraded(self, error: GraderError) -> Turn:
        """The last turn of an episode whose grader reached no verdict: truncated, no grade."""
        self.verdict = f"not graded: {error}"
        info = {"error": f"GraderError: {error}", "grader_error": str(error)}
        about = {"answer": "", "rule": "grader_error", "truth": self.question.truth, **self.about}
        return end(success=False, reward=0.0, truncated=True, info={**about, **info})

    def picture(self) -> str:
        """The question; after the answer, also the answer and its grade."""
        return f"{self.question.text}\n\n{self.verdict}" if self.verdict else self.question.text

    def best_action(self) -> str:
        """The truth."""
        return self.question.truth


class DatasetEnv(QuestionEnv):
    """Questions from the rows of a dataset, drawn uniformly or named by the option "row".

    The first and the last info have "row", "split" ("sample" for the bundled sample), "data": name
    and hash of the rows, such as "openai/gsm8k:main@0123456789abcdef", and "licence": that of the
    rows, such as "MIT", or "not stated".

    Attributes:
        hub_ids: data set on the hub of the splits "test" and "train".

    Args:
        rows: the questions and their origin, as `load_rows` returns them.

    >>> import gymnasium as gym
    >>> observation, info = gym.make("ludic/GSM8K-v0").reset(options={"row": 0})
    >>> info["row"], info["split"], info["licence"]
    (0, 'sample', 'Apache-2.0')
    """

    hub_ids: ClassVar[Mapping[str, str]] = MappingProxyType({})

    origin: Origin

    def __init__(self, rows: Rows[Q], render_mode: str | None = None) -> None:
        super().__init__(render_mode, rows=rows)

    def __str__(self) -> str:
        # Results and tables print the env: the bundled sample needs no hash there.
        where = self.origin.split if self.origin.split == "sample" else str(self.origin)
        return f"<{type(self).__name__} {where}, {self.num_rows} rows>"

    __repr__ = __str__

    def ask(self, options: Mapping[str, Any]) -> Question:
        """The question of the row."""
        return self.row_question(options)


def rows_if_given(
    data: str | None,
    parse: Callable[[Row], Q],
    *,
    kind: str,
    split: str,
    fields: Fields | None,
    on_bad_row: OnBadRow,
) -> Rows[Q] | None:
    """The rows of a puzzle's argument `data`; None without it, for generated questions.

    Arguments and errors as of `load_rows`. split: "all" for the one that a data set has by default.
    """
    if data is None:
        if fields is not None:
            raise ConfigError(f"fields= names columns of data=, which is not given: {fields!r}")
        return None
    if data == "sample":
        raise ConfigError("these questions are generated: leave data= out, or name a file")
    named = None if split == "all" else split
    return load_rows(
        data,
        parse,
        sample=Path(),
        split=named,
        kind=kind,
        fields=fields,
        on_bad_row=on_bad_row,
    )
