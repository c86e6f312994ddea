"""SQL: questions about databases, answered by queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludic_gym.data.load import load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.code import CodeEnv, Problem
from ludic_gym.graders.programs.types import QueryTests

SAMPLE = Path(__file__).parents[1] / "data" / "sql_sample.jsonl"


class SQLEnv(CodeEnv):
    """A question about a SQLite database, answered by one query that only reads.

    - Observation: the schema and the question.
    - Action: a reply with the query in a ```sql block, or the query alone.
    - Reward: 1 if the query returns the rows of the reference query (see `CodeEnv`). Names of
      columns do not matter; numbers are compared to nine digits.
    - Info: see `CodeEnv`.

    Args:
        data: "sample" (thirty questions about three databases, written for this package), a path,
            or a hub id, with the fields "question", "schema" (CREATE statements, part of the
            observation), "data" (INSERT statements, which are hidden), "query" (the reference), and
            optionally "ordered" (true if the order of the rows matters).
        split: split of a hub dataset or a folder.
        render_mode: "ansi", "html" or None.
        **options: see `CodeEnv`, from `sandbox` on.

    ```text
    CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT, born INTEGER);
    Who was born after 1960?
    > SELECT name FROM author WHERE born > 1960         (reward 1)
    ```
    """

    prompt = (
        "Answer the question by one SQLite query that only reads. Reply with the query in a ```sql "
        "block."
    )
    languages = ("sql", "sqlite")

    def __init__(
        self,
        data: str = "sample",
        split: str | None = None,
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        rows = load_rows(data, question, sample=SAMPLE, split=split)
        super().__init__(rows, render_mode=render_mode, **options)


def question(row: Row) -> Problem:
    """The question with its database. Raises DataError if a field is missing."""
    schema, query = text_field(row, "schema"), text_field(row, "query")
    tests = QueryTests(
        # The rows are hidden: a query must not be written for the data at hand.
        schema=f"{schema}\n{text_field(row, 'data')}",
        reference=query,
        ordered=row.fields.get("ordered") is True,
    )
    return Problem(f"{schema}\n\n{text_field(row, 'question')}", query, tests)
