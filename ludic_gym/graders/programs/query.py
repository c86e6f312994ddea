"""Grading of SQL: a query runs in a sandbox, and its rows are compared outside."""

from __future__ import annotations

from typing import Any

from ludic_gym.errors import DataError
from ludic_gym.graders.programs.compare import is_same_table
from ludic_gym.graders.programs.talk import Gone, talk_to
from ludic_gym.graders.programs.types import MESSAGE_LIMIT, Outcome, QueryTests, RowTests, Verdict
from ludic_gym.sandbox.types import Limits, Sandbox


async def run_query(sandbox: Sandbox, query: str, tests: RowTests, limits: Limits) -> Verdict:
    """The verdict on a query: one test, its rows. Raises SandboxError, DataError."""
    reply = await _answer(sandbox, query, tests.schema, limits)
    if isinstance(reply, Gone):
        return Verdict(outcome=reply.outcome, passed=0, total=1, message=str(reply))
    kind, content = reply[0], reply[-1]
    if kind in ("syntax", "raised"):
        outcome: Outcome = "syntax" if kind == "syntax" else "raised"
        message = str(content)[:MESSAGE_LIMIT]
        return Verdict(outcome=outcome, passed=0, total=1, message=message)
    if kind == "rows" and is_same_table(content, tests.rows, ordered=tests.ordered):
        return Verdict(outcome="passed", passed=1, total=1)
    gave = f"gave {len(content)} rows" if isinstance(content, list) else f"gave {content}"
    return Verdict(outcome="wrong", passed=0, total=1, failed=0, message=gave[:MESSAGE_LIMIT])


async def reference_rows(sandbox: Sandbox, tests: QueryTests, limits: Limits) -> RowTests:
    """The rows of the reference query. Raises SandboxError, and DataError if it fails."""
    reply = await _answer(sandbox, tests.reference, tests.schema, limits)
    if isinstance(reply, Gone) or reply[0] != "rows":
        raise DataError(f"the reference query {tests.reference!r} gives no rows: {reply}")
    return RowTests(schema=tests.schema, rows=tuple(reply[1]), ordered=tests.ordered)


async def _answer(sandbox: Sandbox, query: str, schema: str, limits: Limits) -> list[Any] | Gone:
    async with talk_to(sandbox, "query", limits) as talk:
        try:
            reply = await talk.ask({"schema": schema, "query": query})
        except Gone as gone:
            return gone
    if reply[0] == "broken":
        raise DataError(f"the database cannot be made: {reply[-1]}")
    return reply
