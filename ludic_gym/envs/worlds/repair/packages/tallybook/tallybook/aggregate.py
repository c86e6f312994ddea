"""Groups of rows and figures about them."""


def group(rows, *columns):
    """{values of the columns: rows}, in the order in which the values come first.

    The key is the value itself for one column, a tuple for several.
    """
    found = {}
    for row in rows:
        key = tuple(row.get(column) for column in columns)
        found.setdefault(key[0] if len(columns) == 1 else key, []).append(row)
    return found


def summary(rows, column):
    """Count, sum, mean, median, minimum and maximum of a column without its None values."""
    values = sorted(row[column] for row in rows if row.get(column) is not None)
    if not values:
        return {"count": 0, "sum": 0, "mean": None, "median": None, "min": None, "max": None}
    middle = len(values) // 2
    if len(values) % 2:
        median = values[middle]
    else:
        median = (values[middle - 1] + values[middle]) / 2
    return {
        "count": len(values),
        "sum": sum(values),
        "mean": sum(values) / len(values),
        "median": median,
        "min": values[0],
        "max": values[-1],
    }
