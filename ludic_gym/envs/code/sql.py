"""SQL: a question about a database is answered by a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludic_gym.data.load import load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.base import Turn
from ludic_gym.envs.core.code import CodeEnv, Problem
from ludic_gym.errors import NoOracle
from ludic_gym.graders.programs.types import QueryTests, program_in

SAMPLE = Path(__file__).parents[1] / "data" / "sql_sample.jsonl"


class SQLEnv(CodeEnv):
    """One question about a SQLite database, answered by one query that only reads.

    data: "sample" (thirty questions about three databases, written for this package), or another
        source, with the fields "question", "schema" (the CREATE statements, which are shown),
        "data" (the INSERT statements, which are not), "query" (a right one), and perhaps "ordered"
        (true if the order of the rows counts).
    split: the split of a hub data set or a folder.
    **options: those of `CodeEnv`.

    Observation: the tables and the question. Action: a reply with the query in a ```sql block, or
    nothing but the query. Reward: 1 if it gives the rows that the right query gives; columns may be
    called anything, numbers are compared to nine digits.

        CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT, born INTEGER);
        Who was born after 1960?
    SELECT name FROM author WHERE born > 1960              (reward 1)
    """

    prompt = (
        "Answer the question by one SQLite query that only reads. Reply with the query in a ```sql "
        "block."
    )

    def __init__(
        self,
        data: str = "sample",
        split: str | None = None,
        *,
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        rows = load_rows(data, question, sample=SAMPLE, split=split)
        super().__init__(rows.items, rows.origin, render_mode=render_mode, **options)

    def _advance(self, action: str) -> Turn:
        return self._graded(program_in(action, ("sql", "sqlite")))

    def oracle_action(self) -> str:
        """The right query. Raises NoOracle when no question is open."""
        if not self._running:
            raise NoOracle(f"{type(self).__name__}: no question is open; call reset() first")
        return f"```sql\n{self._question.truth}\n```"


def question(row: Row) -> Problem:
    """The question with its database. Raises DataError if a field is missing."""
    schema, query = text_field(row, "schema"), text_field(row, "query")
    tests = QueryTests(
        schema=f"{schema}\n{text_field(row, 'data')}",
        reference=query,
        ordered=row.fields.get("ordered") is True,
    )
    return Problem(f"{schema}\n\n{text_field(row, 'question')}", query, tests)
