"""Conditions on rows."""

OPERATORS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a is not None and a < b,
    "le": lambda a, b: a is not None and a <= b,
    "gt": lambda a, b: a is not None and a > b,
    "ge": lambda a, b: a is not None and a >= b,
    "in": lambda a, b: a in b,
    "has": lambda a, b: a is not None and b.lower() in a.lower(),
    "null": lambda a, b: (a is None) == b,
}


def where(**conditions):
    """A function that is True for rows that meet all conditions.

    A condition is column=value, or column__operator=value with one of `OPERATORS`; a column that
    a row lacks is None. "has" looks for a text, in any case of letters.
    """
    tests = []
    for name, value in conditions.items():
        column, _, operator = name.partition("__")
        if (operator or "eq") not in OPERATORS:
            raise ValueError(f"no operator {operator!r}")
        tests.append((column, OPERATORS[operator or "eq"], value))

    def meets(row):
        return all(test(row.get(column), value) for column, test, value in tests)

    return meets
