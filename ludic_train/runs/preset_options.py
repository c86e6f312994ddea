"""Options of the presets that have a name, read from the source: no torch for `--help`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludic_gym.errors import ConfigError
from ludic_gym.terminal import suggestion

# Imitation has no rewards to learn from, and a teacher is a model, which no option can name.
WITHOUT_NAME = frozenset({"sft", "distillation", "top_k_distillation"})
# What every run gives a preset by settings of its own.
OF_THE_RUN = frozenset({"entropy", "max_tokens"})
TYPES: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "int | None": int | None,
    "float | None": float | None,
}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a preset: its default, its type, and the sentence of the docstring about it."""

    default: float | None
    type: Any
    help: str


def _entries(function: ast.FunctionDef) -> dict[str, str]:
    """Text of the docstring about each argument: entries are "name, name: text."."""
    names = [argument.arg for argument in function.args.kwonlyargs]
    text = " ".join((ast.get_docstring(function) or "").split())
    one = "|".join(map(re.escape, names)) or "-"
    heads = list(re.finditer(rf"(?<!\w)((?:{one})(?:, (?:{one}))*): ", text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    texts: dict[str, str] = {}
    for head, end in zip(heads, ends, strict=True):
        entry = text[head.end() : end].strip(" ;")
        texts |= dict.fromkeys(head[1].split(", "), entry)
    return texts


def _options() -> dict[str, dict[str, Option]]:
    source = Path(__file__).parents[1] / "algorithms" / "presets.py"
    # Those that make an algorithm from options alone.
    functions = {
        node.name: node
        for node in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.args.args and node.returns is not None
        if ast.unparse(node.returns) == "RLAlgorithm" and node.name not in WITHOUT_NAME
    }
    entries = {name: _entries(function) for name, function in functions.items()}

    def help_of(preset: str, argument: str) -> str:
        text = entries[preset].get(argument, "")
        other = re.search(r"as in `(\w+)`", text)
        return help_of(other[1], argument) if other and other[1] in entries else text

    return {
        name: {
            argument.arg: Option(
                ast.literal_eval(default),
                TYPES[ast.unparse(argument.annotation)],
                help_of(name, argument.arg),
            )
            for argument, default in zip(
                function.args.kwonlyargs, function.args.kw_defaults, strict=True
            )
            if argument.arg not in OF_THE_RUN and default is not None and argument.annotation
        }
        for name, function in functions.items()
    }


PRESET_OPTIONS: Mapping[str, Mapping[str, Option]] = _options()
"""Options of each algorithm of `ludic train --algo`, by name."""


def check_options(preset: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for a name that is no preset's, and for an option that it does not have."""
    if preset not in PRESET_OPTIONS:
        raise ConfigError(f"no algorithm {preset!r}; there are: {', '.join(PRESET_OPTIONS)}")
    options_of_preset = PRESET_OPTIONS[preset]
    for name in options:
        if name not in options_of_preset:
            hint = suggestion(name, list(options_of_preset), otherwise="it has")
            raise ConfigError(f"the algorithm {preset} has no option {name!r}; {hint}")
