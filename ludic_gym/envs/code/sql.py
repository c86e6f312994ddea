"""SQL: questions about databases, answered by queries."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludic_gym.data.fields import Fields
from ludic_gym.data.load import OnBadRow, load_rows
from ludic_gym.data.row import Row, text_field
from ludic_gym.envs.core.base import checked_choice
from ludic_gym.envs.core.code import CodeEnv, Problem
from ludic_gym.errors import ConfigError, DataError
from ludic_gym.graders.programs.types import Match, QueryTests
from ludic_gym.sandbox.types import MEBIBYTE

# Of the memory of a query: the file is there as text, as bytes and as the database itself.
COPIES = 3
_NAME = re.compile(r"[\w-]+")
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
            optionally "ordered" (true if the order of the rows matters). Rows of Spider and BIRD
            have "db_id", "question", "query" or "SQL", and optionally "evidence".
        split: split of a hub dataset or a folder.
        databases: for rows with "db_id", a folder with a SQLite file DB_ID/DB_ID.sqlite for each.
        match: comparison of rows with those of the reference: "rows", the columns in any order too
            ("columns", the rule of Spider), or as sets ("set", the rule of BIRD).
        fields: columns of these fields in another layout: see `load_rows`.
        on_bad_row: "skip" leaves out rows that cannot be asked or graded.
        **options: see `CodeEnv`, from `sandbox` on.
    """

    prompt = (
        "Answer the question by one SQLite query that only reads. Reply with the query in a ```sql "
        "block."
    )
    languages = ("sql", "sqlite")

    def __init__(
        self,
        data: str | None = None,
        split: str | None = None,
        *,
        databases: str = "",
        match: Match = "rows",
        fields: Fields | None = None,
        on_bad_row: OnBadRow = "error",
        render_mode: str | None = None,
        **options: Any,  # noqa: ANN401 (CodeEnv checks them)
    ) -> None:
        checked_choice("match", match, ("rows", "columns", "set"))
        # The folder is applied here and not in the parser, whose results are cached per file.
        rows = load_rows(
            data,
            question,
            sample=SAMPLE,
            split=split,
            kind="sql",
            fields=fields,
            on_bad_row=on_bad_row,
        )
        problems = tuple(with_database(problem, databases, match) for problem in rows)
        super().__init__(replace(rows, items=problems), render_mode=render_mode, **options)
        largest = max(
            Path(p.tests.database).stat().st_size if p.tests.database else 0 for p in problems
        )
        if COPIES * largest > self.limits.memory_bytes:
            raise ConfigError(
                f"the largest database has {largest / MEBIBYTE:.0f} MiB, of which a query needs "
                f"{COPIES} times that: set memory_mb={COPIES * largest // MEBIBYTE + 100}"
            )


@dataclass(frozen=True, slots=True)
class Query(Problem):
    """A question about a database.

    database: its name in a folder of databases; "" for one that the row makes itself.
    """

    tests: QueryTests
    database: str = ""


def with_database(problem: Query, folder: str, match: Match) -> Query:
    """The question with the schema of its database before it, and the rule of comparison.

    folder: of the databases; "" if there is none. Raises ConfigError without one for a question
    that needs one, and DataError for a file that cannot be read.
    """
    if not problem.database:
        return replace(problem, tests=replace(problem.tests, match=match))
    if not folder:
        raise ConfigError(
            f"the rows name databases, such as {problem.database!r}: name the folder with "
            f"{problem.database}/{problem.database}.sqlite as databases="
        )
    path = Path(folder) / problem.database / f"{problem.database}.sqlite"
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); see databases=") from error
    tests = replace(problem.tests, database=str(path.resolve()), changed_ns=changed_ns, match=match)
    text = f"{schema_of(path.resolve(), changed_ns)}\n\n{problem.text}"
    return replace(problem, text=text, tests=tests)


@lru_cache(maxsize=512)
def schema_of(path: Path, changed_ns: int) -> str:
    """The CREATE statements of a SQLite file, which is opened for reading only.

    changed_ns: its time of change. Raises DataError for a file that is no database.
    """
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"
            )
            return "\n".join(f"{sql};" for (sql,) in rows)
    except sqlite3.Error as error:
        raise DataError(f"{path}: cannot be read as a SQLite database ({error})") from error


def question(row: Row) -> Query:
    """The question with its database. Raises DataError if a field is missing."""
    if "db_id" in row.fields:
        return _of_folder(row)
    schema, query = text_field(row, "schema"), text_field(row, "query")
    tests = QueryTests(
        # The rows are hidden: a query must not be written for the data at hand.
        schema=f"{schema}\n{text_field(row, 'data')}",
        reference=query,
        ordered=row.fields.get("ordered") is True,
    )
    return Query(f"{schema}\n\n{text_field(row, 'question')}", query, tests)


def _of_folder(row: Row) -> Query:
    """The question of a row of Spider or BIRD, without the schema of its database."""
    query, name = text_field(row, "query"), text_field(row, "db_id")
    # It becomes a part of a path.
    if not _NAME.fullmatch(name):
        raise DataError(f"{row.where}: field 'db_id' must be letters, digits, _ or -, got {name!r}")
    evidence = str(row.fields.get("evidence") or "").strip()
    hint = f"External knowledge: {evidence}\n" if evidence else ""
    tests = QueryTests(reference=query, ordered="order by" in " ".join(query.lower().split()))
    return Query(f"{hint}{text_field(row, 'question')}", query, tests, database=name)
