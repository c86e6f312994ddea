"""Queries, built step by step."""

from tallybook.where import where


class Query:
    """Rows of a table; every method returns a new query and leaves this one as it is."""

    def __init__(self, rows):
        self._rows = list(rows)

    def where(self, **conditions):
        """Only rows that meet the conditions."""
        return Query(filter(where(**conditions), self._rows))

    def sort(self, *columns):
        """Sorted by columns; "-name" is descending. None comes last, equal rows stay in order."""
        rows = self._rows
        for name in reversed(columns):
            column = name.lstrip("-")
            known = [row for row in rows if row.get(column) is not None]
            unknown = [row for row in rows if row.get(column) is None]
            known.sort(key=lambda row: row[column], reverse=name.startswith("-"))
            rows = known + unknown
        return Query(rows)

    def select(self, *columns, **renamed):
        """Only these columns; new=old renames one. Missing ones are None."""
        names = {column: column for column in columns} | renamed
        return Query({new: row.get(old) for new, old in names.items()} for row in self._rows)

    def page(self, number, size=10):
        """The rows of a page; pages begin with 1."""
        if number < 1 or size < 1:
            raise ValueError(f"page {number} of size {size}")
        return Query(self._rows[(number - 1) * size : number * size])

    def unique(self, *columns):
        """The first row of each combination of values."""
        found = {}
        for row in self._rows:
            found.setdefault(tuple(row.get(column) for column in columns), row)
        return Query(found.values())

    def join(self, other, column):
        """Each row with the columns of the other table's rows of the same value, if there are any.

        A column that both have keeps the value of the left side.
        """
        return Query(
            {**right, **left} for left in self for right in other if both(left, right, column)
        )

    def __iter__(self):
        return iter(self._rows)

    def __len__(self):
        return len(self._rows)


def both(left, right, column):
    """True if both rows have the same value, which is not None, in the column."""
    return left.get(column) is not None and left.get(column) == right.get(column)
