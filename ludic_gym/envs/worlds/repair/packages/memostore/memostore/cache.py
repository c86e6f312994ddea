"""A cache that forgets the entries that were used longest ago, and those that are too old."""

from collections import OrderedDict

from memostore.stats import Stats


class Cache:
    """At most `size` entries, each for `ttl` seconds (None: for ever) after it was set.

    clock: a function that returns the time in seconds.
    """

    def __init__(self, size, ttl=None, clock=lambda: 0):
        if size < 1:
            raise ValueError(f"size must be 1 or more, got {size}")
        self.size = size
        self.ttl = ttl
        self.clock = clock
        self.stats = Stats()
        self._entries = OrderedDict()

    def get(self, key, default=None):
        """The value of a key, which is then the one that was used last."""
        if key not in self:
            self.stats.misses += 1
            return default
        self.stats.hits += 1
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def set(self, key, value):
        """Store a value; if there are too many, expired entries go first, then the oldest."""
        self._entries.pop(key, None)
        if len(self._entries) >= self.size:
            self.purge()
        while len(self._entries) >= self.size:
            self._entries.popitem(last=False)
            self.stats.evictions += 1
        self._entries[key] = (value, self.clock())

    def delete(self, key):
        """Remove a key; True if it was there."""
        return self._entries.pop(key, None) is not None

    def purge(self):
        """Remove all expired entries; their number."""
        old = [key for key in self._entries if key not in self]
        for key in old:
            del self._entries[key]
        return len(old)

    def keys(self):
        """The keys that are not expired, from the one used longest ago to the last one."""
        return [key for key in self._entries if key in self]

    def __contains__(self, key):
        if key not in self._entries:
            return False
        age = self.clock() - self._entries[key][1]
        return self.ttl is None or age < self.ttl

    def __len__(self):
        return len(self.keys())
