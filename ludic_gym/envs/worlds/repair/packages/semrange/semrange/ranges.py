"""Ranges such as ">=1.2, <2" or "^0.3.1 || ~2.4"."""

import re

from semrange.version import Version

TERM = re.compile(r"(>=|<=|>|<|=|\^|~)?\s*(.+)")


def upper(version, sign):
    """The first version that is too new for ^ or ~.

    ^ allows what keeps the first number that is not 0; ~ allows what keeps major and minor.
    """
    major, minor, patch = version.numbers
    if sign == "~":
        return Version(f"{major}.{minor + 1}.0")
    if major > 0:
        return Version(f"{major + 1}.0.0")
    if minor > 0:
        return Version(f"0.{minor + 1}.0")
    return Version(f"0.0.{patch + 1}")


def term(text):
    """A function that is True for the versions of one term."""
    sign, name = TERM.fullmatch(text.strip()).groups()
    limit = Version(name if "." in name else f"{name}.0")
    tests = {
        ">": lambda v: v > limit,
        "<": lambda v: v < limit,
        ">=": lambda v: v >= limit,
        "<=": lambda v: v <= limit,
        "=": lambda v: v == limit,
    }
    if sign in ("^", "~"):
        end = upper(limit, sign)
        return lambda v: limit <= v < end
    return tests[sign or "="]


class Range:
    """Terms joined by "," (all must hold) and "||" (one side must hold); "*" is any release."""

    def __init__(self, text):
        self.text = text
        self.sides = [
            [term(part) for part in side.split(",") if part.strip() not in ("", "*")]
            for side in text.split("||")
        ]

    def __contains__(self, version):
        """True if the version is in the range; a pre-release only if the range names one."""
        if version.pre and "-" not in self.text:
            return False
        return any(all(test(version) for test in side) for side in self.sides)


def newest(versions, text):
    """The newest of the versions that is in the range, None if there is none."""
    wanted = Range(text)
    return max((v for v in versions if v in wanted), default=None)
