"""Arguments of chat templates, such as Qwen's `enable_thinking`, set in the template itself.

The template of a tokenizer is text that begins with the values then, so that all who render by it,
and those who read a saved model, get the same prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, TemplateSyntaxError, meta

from ludic_gym.errors import ConfigError
from ludic_gym.suggestions import suggestion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Ends the values at the beginning of a template.
MARK = "{#- chat arguments -#}"
# Given by transformers, not by a user.
OWN = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
OWN |= {"raise_exception", "strftime_now"}


def set_chat_args(tokenizer: PreTrainedTokenizerBase, args: Mapping[str, Any]) -> None:
    """Have the tokenizer's chat template read these values, as arguments of its names.

        set_chat_args(tokenizer, {"enable_thinking": False})

    args: JSON values by name, which replace those that were set before.
    Raises ConfigError for a name that the template does not read, and for a value that is no JSON.
    """
    if not args:
        return
    template = tokenizer.chat_template
    if not isinstance(template, dict):
        tokenizer.chat_template = _with_args(template, args, tokenizer)
        return
    # Which one is rendered depends on the tools of a dialog.
    tokenizer.chat_template = {
        name: _with_args(each, args, tokenizer) if name in ("default", "tool_use") else each
        for name, each in template.items()
    }


def template_args(template: str, tokenizer: PreTrainedTokenizerBase) -> frozenset[str] | None:
    """Names of the arguments that a template reads; None for one that jinja2 cannot say it of."""
    env = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True)
    # Of transformers alone, for masks of training.
    plain = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template.rpartition(MARK)[2])
    try:
        read = meta.find_undeclared_variables(env.parse(plain))
    except TemplateSyntaxError:
        return None
    return frozenset(read - OWN - env.globals.keys() - tokenizer.special_tokens_map.keys())


def _with_args(template: str, args: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> str:
    """The template with these values in place of those that it has. Raises ConfigError."""
    known = template_args(template, tokenizer)
    for name, value in args.items():
        if known is not None and name not in known:
            hint = suggestion(name, sorted(known), otherwise="it reads") if known else "it has none"
            raise ConfigError(f"the model's chat template reads no argument {name!r}; {hint}")
        if not name.isidentifier() or name in OWN:
            raise ConfigError(f"{name!r} is no name of an argument of a chat template")
        if value is None:
            raise ConfigError(f"the chat argument {name} is null: leave it out")
    values = "".join(f"{{%- set {name} = {_literal(v)} -%}}" for name, v in sorted(args.items()))
    return f"{values}{MARK}{template.rpartition(MARK)[2]}"


def _literal(value: Any) -> str:  # noqa: ANN401 - JSON
    """The value as an expression of jinja2. Raises ConfigError for one that is no JSON."""
    match value:
        case str():
            # Each character by its number: no text can end the string, or the statement.
            return '"' + "".join(f"\\U{ord(character):08x}" for character in value) + '"'
        case bool() | int() | float() | None:
            try:
                return "none" if value is None else json.dumps(value, allow_nan=False)
            except ValueError:
                pass
        case list() | tuple():
            return f"[{', '.join(map(_literal, value))}]"
        case {**items} if all(isinstance(key, str) for key in items):
            return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in items.items()) + "}"
    raise ConfigError(f"an argument of a chat template is {value!r}, and can be JSON alone")
