"""Spans of days; both ends belong to a span."""

from datetime import date, timedelta

DAY = timedelta(days=1)


class Span:
    """The days from `first` to `last`, given as dates or as texts such as "2024-02-29"."""

    def __init__(self, first, last=None):
        self.first = as_date(first)
        self.last = as_date(last) if last is not None else self.first
        if self.last < self.first:
            raise ValueError(f"{self.last} is before {self.first}")

    def __len__(self):
        return (self.last - self.first).days + 1

    def __iter__(self):
        for number in range(len(self)):
            yield self.first + number * DAY

    def __contains__(self, day):
        return self.first <= as_date(day) <= self.last

    def overlaps(self, other):
        """True if the spans have a day in common."""
        return self.first <= other.last and other.first <= self.last

    def common(self, other):
        """The span of the common days, None if there are none."""
        if not self.overlaps(other):
            return None
        return Span(max(self.first, other.first), min(self.last, other.last))

    def moved(self, days):
        """The span that many days later."""
        return Span(self.first + days * DAY, self.last + days * DAY)

    def weeks(self):
        """The span in parts that end on Sundays."""
        found = []
        start = self.first
        while start <= self.last:
            sunday = start + (6 - start.weekday()) * DAY
            found.append(Span(start, min(sunday, self.last)))
            start = sunday + DAY
        return found

    def __eq__(self, other):
        return (self.first, self.last) == (other.first, other.last)

    def __hash__(self):
        return hash((self.first, self.last))

    def __repr__(self):
        return f"{self.first}..{self.last}"


def as_date(value):
    """A date, from itself or from a text."""
    return value if isinstance(value, date) else date.fromisoformat(value)


def merged(spans):
    """The same days in as few spans as possible, in order; neighbours are joined."""
    found = []
    for span in sorted(spans, key=lambda one: (one.first, one.last)):
        if found and span.first <= found[-1].last + DAY:
            found[-1] = Span(found[-1].first, max(found[-1].last, span.last))
        else:
            found.append(span)
    return found


def gaps(spans):
    """The spans between the given ones."""
    joined = merged(spans)
    return [Span(a.last + DAY, b.first - DAY) for a, b in zip(joined, joined[1:])]
