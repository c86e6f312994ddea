"""Griffe extension that turns our docstrings into Markdown.

Lines that describe a parameter or a field ("queue: one for this source alone") become a list, and
public names in backticks become links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe
import reference_pages

PATHS = {
    name: f"{module}.{name}"
    for package in reference_pages.PACKAGES
    for module, name in reference_pages.public_names(package)
}
NAME = re.compile(r"(?<![\[`])`([A-Z]\w+)`(?!`)")
FIELD = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*): (?=\S)")


class Fields(griffe.Extension):
    """Rewrites the docstrings of classes and functions before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:  # noqa: ANN401
        """Rewrite the docstring of the object."""
        if obj.docstring is not None and isinstance(obj, griffe.Class | griffe.Function):
            names = {parameter.name for parameter in obj.parameters} | obj.members.keys()
            lines = listed(obj.docstring.value.splitlines(), names)
            obj.docstring.value = NAME.sub(lambda m: linked(m[1], obj.name), "\n".join(lines))


def linked(name: str, page: str) -> str:
    """The name in backticks; a link if it is public and not the object itself."""
    code = f"`{name}`"
    return f"[{code}][{PATHS[name]}]" if name in PATHS and name != page else code


def listed(lines: list[str], names: set[str]) -> Iterator[str]:
    """The lines, with those that describe one of the names as items of a list."""
    in_item = False
    for line in lines:
        match = FIELD.match(line)
        if match and names.issuperset(match[1].split(", ")):
            if not in_item:
                yield ""
            shown = ", ".join(f"`{name}`" for name in match[1].split(", "))
            yield f"- {shown}: {line[match.end() :]}"
            in_item = True
        elif in_item and line and not line.startswith(" "):
            in_item = False
            yield ""
            yield line
        else:
            yield line
