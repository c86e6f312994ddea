"""Plans of a job: the times at which it starts."""

from datetime import datetime, timedelta

from timetable.fields import parse_field


class Plan:
    """A plan "minute hour weekday", such as "0,30 9-17 mon-fri"; weekdays begin with mon = 0."""

    def __init__(self, text):
        parts = text.split()
        if len(parts) != 3:
            raise ValueError(f"a plan has 3 fields, got {len(parts)}: {text!r}")
        self.minutes = parse_field(parts[0], 0, 59)
        self.hours = parse_field(parts[1], 0, 23)
        self.weekdays = parse_field(parts[2], 0, 6)

    def matches(self, time):
        """True if the job starts in this minute."""
        return (
            time.minute in self.minutes
            and time.hour in self.hours
            and time.weekday() in self.weekdays
        )

    def next_after(self, time):
        """The first start after a time, not at it."""
        now = time.replace(second=0, microsecond=0) + timedelta(minutes=1)
        while not self.matches(now):
            if now.weekday() not in self.weekdays:
                now = datetime(now.year, now.month, now.day) + timedelta(days=1)
            elif now.hour not in self.hours:
                now = now.replace(minute=0) + timedelta(hours=1)
            else:
                now += timedelta(minutes=1)
        return now

    def between(self, start, stop):
        """All starts from `start` on and before `stop`."""
        found = []
        now = self.next_after(start - timedelta(minutes=1))
        while now < stop:
            found.append(now)
            now = self.next_after(now)
        return found

    def per_week(self):
        """The number of starts in a week."""
        return len(self.minutes) * len(self.hours) * len(self.weekdays)
