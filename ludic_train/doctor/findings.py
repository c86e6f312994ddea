"""What a check found, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

Verdict = Literal["good", "bad", "skipped"]
STYLES = {"good": "green", "bad": "bold red", "skipped": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A check's result. remedy: what to do about a bad one, or why it was skipped."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def judged(check: str, is_good: bool, found: str, remedy: str) -> Finding:
    """The finding, with the remedy where it is needed."""
    if is_good:
        return Finding(check=check, verdict="good", found=found)
    return Finding(check=check, verdict="bad", found=found, remedy=remedy)


def render(findings: Sequence[Finding]) -> Table:
    """The findings as a table; whatever a server said is shown as it is."""
    table = Table("check", "verdict", "found", "what to do")
    for each in findings:
        verdict = Text(each.verdict, style=STYLES[each.verdict])
        table.add_row(Text(each.check), verdict, Text(each.found), Text(each.remedy))
    return table
