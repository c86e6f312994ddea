"""Working days."""

from dayspan.span import DAY, Span, as_date


class Calendar:
    """Monday to Friday (or other weekdays, 0 is Monday) without the holidays."""

    def __init__(self, holidays=(), weekdays=(0, 1, 2, 3, 4)):
        self.holidays = {as_date(day) for day in holidays}
        self.weekdays = frozenset(weekdays)

    def is_open(self, day):
        """True for a working day."""
        day = as_date(day)
        return day.weekday() in self.weekdays and day not in self.holidays

    def count(self, span):
        """The number of working days in a span."""
        return sum(self.is_open(day) for day in span)

    def after(self, day, number):
        """The working day that many working days after a day; 0 is the day or the next open one.

        A negative number counts back.
        """
        if not self.weekdays:
            raise ValueError("no weekday is open")
        day = as_date(day)
        step = DAY if number >= 0 else -DAY
        if number == 0:
            while not self.is_open(day):
                day += DAY
            return day
        left = abs(number)
        while left:
            day += step
            if self.is_open(day):
                left -= 1
        return day

    def due(self, day, number):
        """The span from a day until the deadline after that many working days."""
        return Span(day, self.after(day, number))
