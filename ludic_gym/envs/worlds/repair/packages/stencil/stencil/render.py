"""Render templates."""

from stencil.filters import apply
from stencil.lexer import tokens


class TemplateError(Exception):
    """A template that cannot be rendered; the message begins with the line."""


def lookup(path, scope):
    """The value of a dotted path: keys of dicts, indices of lists; None if there is none."""
    value = scope
    for part in path.split("."):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, (list, tuple)) and part.isdigit():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def evaluate(text, scope):
    """The value of an expression: a path and filters."""
    path, *filters = text.split("|")
    value = lookup(path.strip(), scope)
    for one in filters:
        value = apply(value, one)
    return value


def render(template, **scope):
    """The template with the values of the scope; a missing value is an empty text.

    Blocks: {% if X %} or {% if not X %}, {% else %}, {% end %}, and {% for a in X %} ... {% end %},
    in which "loop" counts from 1; the "else" of a loop is for a list without items.
    """
    found = tokens(template)
    text, at = part(found, 0, scope)
    if at < len(found):
        raise TemplateError(f"{found[at][2]}: {found[at][1]} without a block")
    return text


def part(found, at, scope):
    """The text up to an "else" or "end" of this depth, and the position of that token."""
    texts = []
    while at < len(found):
        kind, content, line = found[at]
        if kind == "text":
            texts.append(content)
        elif kind == "value":
            value = evaluate(content, scope)
            texts.append("" if value is None else str(value))
        elif content in ("else", "end"):
            break
        else:
            text, at = block(found, at, scope)
            texts.append(text)
        at += 1
    return "".join(texts), at


def block(found, at, scope):
    """The text of an "if" or "for", and the position of its "end"."""
    words, line = found[at][1].split(), found[at][2]
    if words[0] == "if":
        negated = words[1] == "not"
        chosen = bool(evaluate(" ".join(words[1 + negated :]), scope)) != negated
        scopes = [scope] if chosen else []
    elif words[0] == "for" and words[2:3] == ["in"]:
        values = evaluate(" ".join(words[3:]), scope) or []
        scopes = [{**scope, words[1]: v, "loop": n} for n, v in enumerate(values, 1)]
    else:
        raise TemplateError(f"{line}: unknown block {found[at][1]!r}")
    texts = [part(found, at + 1, inner)[0] for inner in scopes]
    at = part(found, at + 1, scope)[1]
    if at < len(found) and found[at][1] == "else":
        other, at = part(found, at + 1, scope)
        texts = texts or [other]
    if at == len(found):
        raise TemplateError(f"{line}: block is not closed")
    return "".join(texts), at
