"""Counters of a cache."""


class Stats:
    """Numbers of hits, misses and evictions."""

    def __init__(self):
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def rate(self):
        """The share of lookups that were hits, rounded to two digits; 0.0 without lookups."""
        lookups = self.hits + self.misses
        if lookups == 0:
            return 0.0
        return round(self.hits / lookups, 2)

    def __repr__(self):
        return f"hits={self.hits} misses={self.misses} evictions={self.evictions}"
