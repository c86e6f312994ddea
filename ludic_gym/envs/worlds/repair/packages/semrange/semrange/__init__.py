"""Versions and ranges of versions."""

from semrange.ranges import Range, newest
from semrange.version import Version

__all__ = ["Range", "Version", "newest"]
