"""Configuration files with sections, types and references."""

from confdeck.layers import flatten, merge
from confdeck.reader import ConfigError, parse
from confdeck.values import convert, expand

__all__ = ["ConfigError", "convert", "expand", "flatten", "merge", "parse"]
