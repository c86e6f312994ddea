"""Queries over rows that are dicts."""

from tallybook.aggregate import group, summary
from tallybook.query import Query
from tallybook.where import where

__all__ = ["Query", "group", "summary", "where"]
