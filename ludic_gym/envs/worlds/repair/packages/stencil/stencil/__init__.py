"""Templates with values, filters, conditions and loops."""

from stencil.filters import FILTERS, register
from stencil.lexer import tokens
from stencil.render import TemplateError, render

__all__ = ["FILTERS", "TemplateError", "register", "render", "tokens"]
