"""Routes of a web application."""

from waypost.pattern import Pattern
from waypost.query import parse_query, write_query
from waypost.router import NoRoute, Router

__all__ = ["NoRoute", "Pattern", "Router", "parse_query", "write_query"]
