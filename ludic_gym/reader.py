"""The reader of replies: one function finds the action in what a model wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# Marks that models put around a short reply: Markdown, quotes, brackets.
_AROUND = " \t\r\n*_`\"'(["
_AFTER = _AROUND + ")].,;:!"
# Longer replies are read at both ends only, so that no text costs more than one of this length.
_LONGEST = 20_000
# Bounds the search for actions in running text: with more actions, some are words of any text.
_MOST_MENTIONED = 64
# Of most models and of Seed, of Mistral, of Kimi, of Cohere, and of gpt-oss.
_THOUGHT_END = re.compile(
    r"</(?:(?:seed:)?think|thinking|thought|reasoning)>|\[/THINK\]|\u25c1/think\u25b7"
    r"|<\|END_THINKING\|>|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
_THOUGHT_START = re.compile(
    r"<(?:(?:seed:)?think|thinking|thought|reasoning)>|\[THINK\]|\u25c1think\u25b7"
    r"|<\|START_THINKING\|>|<\|channel\|>analysis<\|message\|>",
    re.IGNORECASE,
)
_TAG = re.compile(r"<([A-Za-z][\w-]{0,30})>\s*([^<>]{1,300}?)\s*</\1>", re.DOTALL)
_BOX = re.compile(r"\\boxed\s*\{(?:\\text\s*\{)?([^{}]{1,300})\}")
_FENCE = re.compile(r"```[\w+-]*\n?([^`]{1,300})```")
_OBJECT = re.compile(r"\{[^{}]{1,600}\}")
_STRONG = re.compile(r"\*\*([^*\n]{1,100})\*\*|`([^`\n]{1,100})`|\"([^\"\n]{1,100})\"")
_LABEL = re.compile(
    r"\b(?:action|move|answer|guess|choice|play|bid|reply|command|decision)"
    r"(?:\s+(?:is|will\s+be|would\s+be)\b\s*:?|\s*[:=])\s*([^\n]{1,300})"
    r"|\bI(?:'ll|\s+will|\s+would|'d)?\s+(?:choose|play|pick|take|guess|select|go\s+with)\s+"
    r"([^\n]{1,300})",
    re.IGNORECASE,
)
# A line that names one word as the action, such as "My final move: Z9".
_NAMED = re.compile(
    r"^[ \t]*(?:\w+[ \t]+){0,2}(?:action|move)[ \t]*[:=][ \t]*(\S{1,100})[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_CLAUSE_END = re.compile(
    r"[.;!?](?=\s|$)|,\s|\s\(|\s-\s|\s[\u2013\u2014]\s|\s(?:because|since|as)\s"
)
_KIND = re.compile(
    r"^\s*(?:(?:the|to|an?)\s+)?(?:(?:letter|word|number|column|cell|square|card|move|action)\s+)?",
    re.IGNORECASE,
)
# Tags and fields by which a reply names its action, legal or not.
_NAMING_TAGS = frozenset({"answer", "action", "move", "guess", "choice"})

Canonical = Callable[[str], str | None]
"""Function of a text without decoration: the action that it spells, None if it spells none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The action in a reply, and the rule that found it.

    action: "" if the reply has no action, or two different ones.
    rule: "whole" for a reply that is the action, or "json", "tag", "box", "fence", "label", "line",
        "strong" or "mention"; without an action "none" or "ambiguous".
    """

    action: str
    rule: str

    @property
    def found(self) -> bool:
        """True if the reply has one action, which may be an empty message."""
        return self.rule not in ("none", "ambiguous")

    @property
    def info(self) -> dict[str, Any]:
        """Keys for the info of a step: "action" and "rule", and "illegal" without an action."""
        facts = {"action": self.action, "rule": self.rule}
        return facts if self.found else {**facts, "illegal": True}


def read_reply(text: str, canonical: Canonical, actions: Sequence[str] = ()) -> Reading:
    r"""The action in an ordinary reply of a model.

    What the reply marks as its action counts first: JSON with one field, a tag, a box, a code
    block, or a label such as "Action:" or "My move is"; then the lines that are an action, then
    what is bold or quoted, and at last the only action that the text mentions. A thought before the
    reply is not read. Two different actions by one rule are none, not a choice.

    canonical: decides what is an action in the present state.
    actions: all of them, if they are few, for the search in running text.

    >>> cells = ("A1", "B2", "C3")
    >>> def cell(text):
    ...     return text.upper() if text.upper() in cells else None
    >>> replies = "b2.", "Not A1.\nAction: B2", r"So \boxed{B2}", "The centre, B2", "A1 or B2"
    >>> [read_reply(reply, cell, cells).rule for reply in replies]
    ['whole', 'label', 'box', 'mention', 'ambiguous']
    """
    reply = without_thought(text)
    if not reply:
        return Reading("", "none")
    if action := _spelt(reply, canonical):
        return Reading(action, "whole")
    if len(reply) > _LONGEST:
        reply = reply[: _LONGEST // 2] + "\n" + reply[-_LONGEST // 2 :]
    marked = list(_marked(reply, canonical))
    # A named action that is not legal was meant: another one in the text is no substitute.
    if marked:
        return _only(marked)
    for rule, spans in (("line", reply.splitlines()), ("strong", _strong(reply))):
        if hits := [(rule, action) for span in spans if (action := _spelt(span, canonical))]:
            return _only(hits)
    return _only([("mention", action) for action in _mentioned(reply, canonical, actions)])


def one_of(actions: Sequence[str]) -> Canonical:
    """The function that finds which of the actions a text spells, in either case."""

    def canonical(text: str) -> str | None:
        # Exact first: two actions may differ in case only.
        if text in actions:
            return text
        return next((action for action in actions if action.lower() == text.lower()), None)

    return canonical


def without_thought(text: str) -> str:
    """The stripped reply after its thought; "" for a thought that is not closed.

    >>> without_thought("<think>B1 or B2?</think> B2"), without_thought(" B2")
    ('B2', 'B2')
    """
    return divided(text)[1].strip()


def divided(text: str, *, opened: bool = False) -> tuple[str, str]:
    """The thought of a reply, with its tags, and the rest; all of it for one that is not closed.

    opened: True where the prompt has opened the thought.

    >>> divided("<think>B1 or B2?</think> B2"), divided("[THINK]B1")
    (('<think>B1 or B2?</think>', ' B2'), ('[THINK]B1', ''))
    """
    ends = list(_THOUGHT_END.finditer(text))
    end = ends[-1].end() if ends else 0
    if _THOUGHT_START.match(text[end:].lstrip()) or (opened and not ends):
        end = len(text)
    return text[:end], text[end:]


def untagged(thought: str) -> str:
    """A thought as `divided` returns it, without the tags around it.

    >>> untagged("<think> B1 or B2?</think>")
    'B1 or B2?'
    """
    begin = _THOUGHT_START.match(thought.lstrip())
    inner = thought.lstrip()[begin.end() :] if begin else thought
    ends = list(_THOUGHT_END.finditer(inner))
    return (inner[: ends[-1].start()] if ends else inner).strip()


def opens_thought(text: str) -> bool:
    """True if the text ends by the tag of a thought."""
    starts = list(_THOUGHT_START.finditer(text))
    return bool(starts) and not text[starts[-1].end() :].strip()


def is_thought_tag(text: str) -> bool:
    """True if the text is a tag that opens or closes a thought.

    >>> is_thought_tag("</think>"), is_thought_tag("<|im_end|>")
    (True, False)
    """
    return bool(_THOUGHT_START.fullmatch(text) or _THOUGHT_END.fullmatch(text))


def bare_text(text: str) -> str:
    """The text without quotes, Markdown and brackets around it, and punctuation at its end.

    >>> [bare_text(text) for text in ("**B2**", "b)", '"42."', "-7", ".5")]
    ['B2', 'b', '42', '-7', '.5']
    """
    return text.lstrip(_AROUND).rstrip(_AFTER)


def _spelt(text: str, canonical: Canonical) -> str | None:
    """The action that the whole text spells, with or without decoration."""
    stripped = text.strip()
    return canonical(stripped) or (canonical(bare) if (bare := bare_text(stripped)) else None)


def _marked(reply: str, canonical: Canonical) -> Iterator[tuple[str, str]]:
    """(rule, action) of each span that the reply marks; "" for a named action that is not legal."""
    for rule, pattern in (("json", _OBJECT), ("box", _BOX), ("fence", _FENCE)):
        for match in pattern.finditer(reply):
            content = _field(match[0]) if rule == "json" else match[1]
            if content is not None and (action := _spelt(content, canonical)):
                yield rule, action
            elif rule == "box":
                yield rule, ""
    for match in _TAG.finditer(reply):
        action = _spelt(match[2], canonical)
        if action or match[1].lower() in _NAMING_TAGS:
            yield "tag", action or ""
    # Without Markdown, which may stand between a label and its action.
    plain = re.sub(r"[*`]", "", reply)
    for match in _LABEL.finditer(plain):
        if action := _first_clause(match[1] or match[2], canonical):
            yield "label", action
    if any(_spelt(match[1], canonical) is None for match in _NAMED.finditer(plain)):
        yield "label", ""


def _field(text: str) -> str | None:
    """The text of the only field of a JSON object, or of the one named as its action."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    named = [key for key in value if str(key).lower() in _NAMING_TAGS]
    if len(value) != 1 and len(named) != 1:
        return None
    field = value[named[0] if named else next(iter(value))]
    return str(field) if isinstance(field, (str, int, float)) else None


def _first_clause(rest: str, canonical: Canonical) -> str | None:
    """The action that the rest of a line spells, or its beginning up to the end of a clause."""
    if action := _spelt(rest, canonical):
        return action
    end = _CLAUSE_END.search(rest)
    clause = rest[: end.start()] if end else rest
    return _spelt(clause, canonical) or _spelt(_KIND.sub("", clause), canonical)


def _strong(reply: str) -> Iterator[str]:
    return (next(filter(None, match.groups())) for match in _STRONG.finditer(reply))


def _mentioned(reply: str, canonical: Canonical, actions: Sequence[str]) -> Iterator[str]:
    """The actions in running text, the longest one at each place."""
    if not 0 < len(actions) <= _MOST_MENTIONED:
        return
    # A single letter is a word of its own in English, and numbers stand in any text.
    names = [name for name in actions if len(name) > 1 and not name.isdigit()]
    if not names:
        return
    longest_first = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    for match in re.finditer(rf"(?<![\w.-])(?:{longest_first})(?![\w-])", reply, re.IGNORECASE):
        if action := canonical(match[0]):
            yield action


def _only(hits: Sequence[tuple[str, str]]) -> Reading:
    """The reading of spans that all spell the same action."""
    if not hits:
        return Reading("", "none")
    if len({action for _, action in hits}) > 1:
        return Reading("", "ambiguous")
    rule, action = hits[-1]
    return Reading(action, rule if action else "none")
