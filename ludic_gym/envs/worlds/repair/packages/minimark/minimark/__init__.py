"""A small markup language, turned into HTML."""

from minimark.blocks import blocks
from minimark.html import escape, slug, to_html
from minimark.inline import inline

__all__ = ["blocks", "escape", "inline", "slug", "to_html"]
