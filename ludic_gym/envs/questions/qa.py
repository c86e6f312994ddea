"""QAEnv: questions from rows, a prompt and a grader, without a class of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np

from ludic_gym.data.fields import Fields, checked_fields
from ludic_gym.data.files import Placed
from ludic_gym.data.load import OnBadRow, Origin, Parse, Rows, load_rows, parsed_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.base import Turn
from ludic_gym.envs.core.question import DatasetEnv, Question
from ludic_gym.errors import ConfigError, DataError, EnvError, GraderError
from ludic_gym.graders.extract import Exchange, Grade
from ludic_gym.graders.rubric import Rubric
from ludic_gym.policies.base import run_blocking

Table = Iterable[Mapping[str, Any]]
"""Rows as dicts: a list, or a data set of the library `datasets`."""


class QAEnv(DatasetEnv):
    """Questions from rows of your own, in one call.

    - Observation: the question.
    - Action: a reply in the format that `prompt` asks for.
    - Reward and info: see `QuestionEnv` and `DatasetEnv`. By a `Rubric`, the reward is the sum of
      its components, and the last info has its keys instead of "answer" and "rule". An episode
      whose judge reaches no verdict is a failed one, as with any grader.

    Args:
        rows: dicts; the same by split, {"train": [...], "test": [...]}; or what `load_rows` takes:
            a file of rows, a folder with a file per split, a hub id.
        prompt: system prompt with the reply format.
        grader: function of the reply and the answer that returns a Grade, as `grade_number` does,
            or a bool; or a `Rubric`, whose graders may call a model.
        question: column of the question, a path such as "prompt.0.content", or a template with
            paths in braces.
        answer: column of the answer, a text or a number, as the grader expects it.
        on_bad_row: "skip" leaves out rows without a text or a number in one of these.
        split: split of the rows. None: "test" if there is one, else the only one.
    Raises DataError for a row without a text or a number in one of these fields, and ConfigError
    for other arguments that cannot work.

    >>> rows = [{"question": "1 + 1?", "answer": 2}, {"question": "2 + 2?", "answer": 4}]
    >>> env = QAEnv(rows, prompt="Reply with a number.", grader=lambda reply, truth: reply == truth)
    >>> env.reset(options={"row": 1})[0]
    '2 + 2?'
    >>> env.step("4")[1]
    1.0
    """

    # A grader of the user, or a judge, may take seconds.
    metadata = {**DatasetEnv.metadata, "blocking": True}  # noqa: RUF012

    def __init__(
        self,
        rows: str | Path | Table | Mapping[str, Table] | QuestionTable,
        *,
        prompt: str,
        grader: Callable[[str, str], Grade | bool] | Rubric,
        question: str = "{question}",
        answer: str = "answer",
        split: str | None = None,
        on_bad_row: OnBadRow = "error",
        render_mode: str | None = None,
    ) -> None:
        if isinstance(rows, QuestionTable):
            table = rows
        else:
            table = QuestionTable(rows, {"question": question, "answer": answer}, on_bad_row)
        super().__init__(table.rows(split), render_mode)
        if not isinstance(prompt, str):
            raise ConfigError(f"prompt is the system prompt, a text, got {prompt!r}")
        if not isinstance(grader, Rubric) and not callable(grader):
            raise ConfigError(
                f"grader is a function of the reply and the answer, or a Rubric, got {grader!r}"
            )
        self.prompt = prompt
        self._table = table
        self._grader = grader

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # A rubric may hold a client with open connections, which copies share.
        memo[id(self._grader)] = self._grader
        return super().__deepcopy__(memo)

    def register(self, env_id: str) -> None:
        """Register such environments with Gymnasium, as `gymnasium.make(env_id)`.

        Further arguments of `make` are `split` and `render_mode`. The rows are shared and not
        parsed again.

            lg.QAEnv(rows, prompt=..., grader=lg.grade_number).register("me/Sums-v0")
            lg.evaluate("me/Sums-v0", policy)
        """
        make = partial(QAEnv, self._table, prompt=self.prompt, grader=self._grader)
        # TextEnv checks the order of calls itself.
        gym.register(env_id, entry_point=make, order_enforce=False)

    def turn(self, action: str) -> Turn:
        """Grade the answer and end the episode."""
        if not isinstance(self._grader, Rubric):
            return super().turn(action)
        exchange = Exchange(self.question.text, action, self.question.truth)
        try:
            grade = run_blocking(self._grader.grade(exchange))
        except GraderError as error:
            return self.ungraded(error)
        self.verdict = f"{action}\n\n{'correct' if grade.success else 'wrong'}"
        info = {**self.about, "truth": self.question.truth, **grade.info}
        return "", grade.total, True, False, info

    def grade_action(self, action: str) -> Grade:
        """The grade by the grader. Raises EnvError if that returns neither a Grade nor a bool."""
        assert not isinstance(self._grader, Rubric)
        grade = self._grader(action, self.question.truth)
        if isinstance(grade, Grade):
            return grade
        if isinstance(grade, bool | np.bool_):
            return Grade(bool(grade), action if grade else None, "grader")
        raise EnvError(
            f"the grader {self._grader!r} returned {grade!r}; return a Grade or a bool, and put an "
            "async grader into a Rubric"
        )


class QuestionTable:
    """Rows in any of the forms of `QAEnv`, parsed once per split; shared by copies of an env.

    fields: places of "question" and "answer".
    Raises ConfigError for fields that cannot work.
    """

    def __init__(
        self,
        source: str | Path | Table | Mapping[str, Table],
        fields: Fields,
        on_bad_row: OnBadRow = "error",
    ) -> None:
        # An iterator can be read once only, and cannot be pickled with the environment.
        self._source = list(source) if isinstance(source, Iterator) else source
        self._fields, self._on_bad_row = checked_fields(fields), on_bad_row
        self._parsed: dict[str | None, Rows[Question]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> QuestionTable:
        return self

    def rows(self, split: str | None) -> Rows[Question]:
        """The questions of the split; ConfigError if there is no such split."""
        if split not in self._parsed:
            self._parsed[split] = self._rows(split)
        return self._parsed[split]

    def _rows(self, split: str | None) -> Rows[Question]:
        if isinstance(self._source, str | Path):
            name = str(self._source)
            return load_rows(
                name,
                _question,
                sample=Path(name),
                split=split,
                fields=self._fields,
                on_bad_row=self._on_bad_row,
            )
        if isinstance(self._source, Mapping):
            only = next(iter(self._source)) if len(self._source) == 1 else "test"
            chosen = only if split is None else split
            if chosen not in self._source:
                splits = sorted(map(str, self._source))
                raise ConfigError(f"split is one of {splits}, got {split!r}")
            table, where = self._source[chosen], f"rows[{chosen!r}]"
        elif split is not None:
            raise ConfigError(
                f"these rows have no splits, got split={split!r}; give rows by split, such as "
                '{"train": [...], "test": [...]}'
            )
        else:
            chosen, table, where = "rows", self._source, "rows"
        parse = Parse(_question, fields=tuple(self._fields.items()))
        origin = Origin("rows", chosen, "")
        return parsed_rows(_placed(table, where), parse, origin, self._on_bad_row)


def _question(row: Row) -> Question:
    return Question(text_field(row, "question"), text_field(row, "answer"))


def _placed(table: Iterable[Any], where: str) -> Iterator[Placed]:
    """The rows with their places, or an error for one that is no dict."""
    for index, fields in enumerate(table):
        row = Row(f"{where}[{index}]", fields)
        if not isinstance(fields, Mapping):
            yield (
                index,
                DataError(
                    f"{row.where}: a row is a dict such as "
                    f'{{"question": "1 + 1?", "answer": "2"}}, got {fields!r}'
                ),
            )
            continue
        yield index, row
