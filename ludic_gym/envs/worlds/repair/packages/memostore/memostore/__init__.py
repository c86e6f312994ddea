"""Caches in memory."""

from memostore.cache import Cache
from memostore.memo import memoize
from memostore.stats import Stats

__all__ = ["Cache", "Stats", "memoize"]
