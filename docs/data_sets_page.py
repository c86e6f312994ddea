"""Page of the data sets that are read as published, made from `envs_registry/data_sets.toml`."""

from __future__ import annotations

from envs_registry.data_sets import DATA_SETS, DataSet
from envs_registry.published import PUBLISHED

PATH = "reference/environments/data-sets.md"
HEAD = """\
# Data sets

Environments recognise these sets by their columns; rows of other columns take `fields=`. See
[Datasets and adapters](../../guides/datasets-and-adapters.md). Each set has a test with a row in
its columns and types (`tests/data_set_rows.py`): it loads, a right reply earns 1, and a wrong
one 0. Environments of one kind, such as GSM8K, MATH and AIME, read the sets of each other.

| set | on the hub | split | columns | environment | grader | licence |
|---|---|---|---|---|---|---|
"""
# Grader of a kind, for sets without a published rule.
GRADERS = {
    "maths": "the number (GSM8K), the integer (AIME) or the expression (MATH)",
    "choice": "the letter of the right choice",
    "short": "one of the accepted answers",
    "program": "all cases pass",
    "sql": "the rows of the reference query",
    "countdown": "the value of the expression; each number at most once",
    "sudoku": "the whole grid",
    "knights": "the kinds in order",
}


def page() -> str:
    """The table of all sets."""
    return HEAD + "".join(map(_row, DATA_SETS.values()))


def _row(entry: DataSet) -> str:
    config = f", `{entry.config}`" if entry.config else ""
    hub = f"`{entry.hub}`{config}" if entry.hub else "local files"
    rule = f"[by its publisher](published.md#{entry.benchmark})"
    grader = rule if entry.benchmark in PUBLISHED else GRADERS[entry.kind]
    # "|" would end the cell.
    columns = " ".join(entry.columns.split()).replace("|", "\\|")
    split = entry.splits.get(entry.split, entry.split) if entry.hub else ""
    cells = (entry.title, hub, split, columns, f"`{entry.env}`", grader, entry.licence)
    return f"| {' | '.join(cells)} |\n"
