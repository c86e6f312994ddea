"""Functions that remember their results."""

from functools import wraps

from memostore.cache import Cache

MISSING = object()


def memoize(size=100, ttl=None, clock=lambda: 0):
    """A decorator: results are cached by arguments, the order of keywords does not matter.

    None is a result like any other; errors are not cached. The cache is `function.cache`.
    """

    def decorate(function):
        cache = Cache(size, ttl, clock)

        @wraps(function)
        def remembered(*args, **kwargs):
            key = (args, tuple(sorted(kwargs.items())))
            found = cache.get(key, MISSING)
            if found is MISSING:
                found = function(*args, **kwargs)
                cache.set(key, found)
            return found

        remembered.cache = cache
        return remembered

    return decorate
