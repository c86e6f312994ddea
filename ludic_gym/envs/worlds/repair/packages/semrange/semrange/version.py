"""Versions such as 1.20.3 or 2.0.0-beta.2."""

import re
from functools import total_ordering

FORM = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?")


@total_ordering
class Version:
    """A version; a missing third number is 0. A pre-release comes before its release."""

    def __init__(self, text):
        found = FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"no version: {text!r}")
        self.numbers = (int(found[1]), int(found[2]), int(found[3] or 0))
        self.pre = tuple(found[4].split(".")) if found[4] else ()

    def key(self):
        """A tuple that sorts like the version.

        Parts of a pre-release that are numbers are compared as numbers, and come before words.
        """
        parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in self.pre)
        return (self.numbers, not self.pre, parts)

    def bump(self, part):
        """The next version: "major", "minor" or "patch"; of a pre-release, "patch" is its release."""
        major, minor, patch = self.numbers
        if part == "major":
            return Version(f"{major + 1}.0.0")
        if part == "minor":
            return Version(f"{major}.{minor + 1}.0")
        if part == "patch":
            return Version(f"{major}.{minor}.{patch if self.pre else patch + 1}")
        raise ValueError(f"unknown part {part!r}")

    def __eq__(self, other):
        return self.key() == other.key()

    def __lt__(self, other):
        return self.key() < other.key()

    def __hash__(self):
        return hash(self.key())

    def __repr__(self):
        text = ".".join(map(str, self.numbers))
        return f"{text}-{'.'.join(self.pre)}" if self.pre else text
