"""Parsers: functions from a policy's text to the action in it, with a reward for the format.

If a format occurs several times, the last one counts, because models think before they answer.
Every parser fails on empty content, so that an action is never "".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ludic_gym.errors import ConfigError

# Bounds the work on hostile texts, such as 100,000 nested objects that are never closed.
_MOST_FAILURES, _MOST_LONG_FAILURES = 10_000, 64
_SHORT_FAILURE = 200
# Most braces, such as those of LaTeX, begin no object, and cost nothing.
_OBJECT_START = re.compile(r"\{\s{0,100}[\"}]")
_DECODER = json.JSONDecoder()
_LAST_NUMBER = re.compile(
    # A hyphen after a number or a name, as in 10-5, is no sign.
    r"(?P<sign>(?<![\w.)\]])[-\u2212\u2013])?[$€£]?"
    r"(?<![\w.])(?P<number>(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?:/\d+)?)"
)


@dataclass(frozen=True, slots=True)
class ParseResult:
    """An action, or None with feedback about the expected format.

    reward: added to the reward of the step, negative for a failure by default.
    feedback: text for the model as its next observation; "" with an action.

    >>> from ludic_gym import xml_tag_parser
    >>> xml_tag_parser("answer")("I say <answer>5</answer>")
    ParseResult(action='5', reward=0.0, feedback='')
    """

    action: str | None
    reward: float = 0.0
    feedback: str = ""


Parser = Callable[[str], ParseResult]
"""A function from a reply to its action, or to feedback if it has none."""


def xml_tag_parser(
    tag: str, *, exact: bool = False, success_reward: float = 0.0, error_reward: float = 0.0
) -> Parser:
    """A parser for the stripped content of the last `<tag>...</tag>`; the tag's case is free.

    exact: only white space may surround the tag, and it may occur only once.
    success_reward, error_reward: reward of a reply with an action, and of one without. `Parsed`
        pays a positive one once in an episode.
    Raises ConfigError for a tag that is no name.

    >>> parse = xml_tag_parser("answer")
    >>> parse("So it is <answer> 5 </answer>.").action
    '5'
    >>> parse("It is 5.").feedback
    'Reply with <answer>...</answer>.'
    """
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", tag):
        raise ConfigError(f"a tag is a letter followed by letters or digits, got {tag!r}")
    opening = re.compile(rf"<\s*{re.escape(tag)}\s*>", re.IGNORECASE)
    closing = re.compile(rf"<\s*/\s*{re.escape(tag)}\s*>", re.IGNORECASE)
    find = partial(_exact_span if exact else _last_span, opening=opening, closing=closing)
    feedback = f"Reply with <{tag}>...</{tag}>{' and nothing else' if exact else ''}."
    return _parser(find, feedback, success_reward, error_reward)


def think_prefix_parser(
    *, opened: bool = False, success_reward: float = 0.0, error_reward: float = 0.0
) -> Parser:
    """A parser for the stripped text after a leading `<think>...</think>`.

    opened: the chat template has written `<think>`, so the text may start inside the block.

    >>> think_prefix_parser()("<think>2 + 3</think> 5").action
    '5'
    """

    def find(text: str) -> str:
        thought, _, answer = text.partition("</think>")
        return answer.strip() if opened or thought.lstrip().startswith("<think>") else ""

    feedback = "Start with <think>...</think>, then answer."
    return _parser(find, feedback, success_reward, error_reward)


def boxed_parser(*, success_reward: float = 0.0, error_reward: float = 0.0) -> Parser:
    r"""A parser for the content of the last `\boxed{...}`, braces balanced; it must be closed.

    >>> print(boxed_parser()(r"It is \boxed{\frac{1}{2}}.").action)
    \frac{1}{2}
    """

    def find(text: str) -> str:
        boxes = list(re.finditer(r"\\boxed\s*\{", text))
        return _balanced(text, boxes[-1].end()) if boxes else ""

    feedback = r"Reply with your answer in \boxed{...}."
    return _parser(find, feedback, success_reward, error_reward)


def json_parser(
    key: str | None = None,
    *,
    exact: bool = False,
    success_reward: float = 0.0,
    error_reward: float = 0.0,
) -> Parser:
    """A parser for the last JSON object of the text, or for its value at `key`.

    The action is the value if that is a string, else its JSON text.
    exact: the whole text must be the object.

    >>> json_parser("move")('I go {"move": "left", "sure": true}').action
    'left'
    """

    def find(text: str) -> str:
        objects = list(_whole_object(text) if exact else _objects(text))
        if not objects or (key is not None and key not in objects[-1]):
            return ""
        # A number or a list as JSON too, so that equal values are equal actions.
        value = objects[-1] if key is None else objects[-1][key]
        return value.strip() if isinstance(value, str) else json.dumps(value)

    expected = "" if key is None else f" with the key {key!r}"
    return _parser(find, f"Reply with a JSON object{expected}.", success_reward, error_reward)


def regex_parser(
    pattern: str, *, feedback: str = "", success_reward: float = 0.0, error_reward: float = 0.0
) -> Parser:
    r"""A parser for the last match of `pattern`: its first group if it has one, else all of it.

    Avoid nested repetition in the pattern, which can take forever on a model's text.
    Raises ConfigError if the pattern does not compile.

    >>> regex_parser(r"move (\w+)")("First move up, then move down.").action
    'down'
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{pattern!r} is not a regular expression: {error}") from error
    group = min(compiled.groups, 1)

    def find(text: str) -> str:
        # A group that took no part in its match is None.
        matches = [match[group] for match in compiled.finditer(text)]
        return (matches[-1] or "").strip() if matches else ""

    feedback = feedback or f"Reply with text that matches {pattern}."
    return _parser(find, feedback, success_reward, error_reward)


def last_number_parser(*, success_reward: float = 0.0, error_reward: float = 0.0) -> Parser:
    """A parser for the last number of a text, such as 1,234.5 or -3/4, without its commas.

    For models that write no tags. A reply that lists all candidates has an action too, which is
    why graders themselves do not take the last number.

    >>> last_number_parser()("So 1,200 and 34 are 1,234.").action
    '1234'
    """

    def find(text: str) -> str:
        numbers = list(_LAST_NUMBER.finditer(text))
        if not numbers:
            return ""
        sign = "-" if numbers[-1]["sign"] else ""
        return sign + numbers[-1]["number"].replace(",", "")

    return _parser(find, "Reply with a number.", success_reward, error_reward)


def named_parser(spec: str) -> Parser:
    """The parser that a text names, or several with "+" between them, each in the former's result.

    The names are "think" (the text after a thought), "xml:TAG", "boxed", "json", "json:KEY" and
    "last-number". For settings in files and on command lines. Raises ConfigError for any other.

    >>> named_parser("think+xml:answer")("<think>2 + 2</think><answer>4</answer>").action
    '4'
    """
    if "+" in spec:
        return compose_parsers(*map(named_parser, spec.split("+")))
    kind, _, argument = spec.partition(":")
    if kind == "xml" and argument:
        return xml_tag_parser(argument)
    if kind == "json":
        return json_parser(argument or None)
    if spec == "think":
        # Templates may open the thought in the prompt.
        return think_prefix_parser(opened=True)
    plain = {"boxed": boxed_parser, "last-number": last_number_parser}
    if spec not in plain:
        raise ConfigError(
            f"no parser {spec!r}; there are: think, xml:TAG, boxed, json, json:KEY, last-number, "
            "and several with + between them"
        )
    return plain[spec]()


def compose_parsers(*parsers: Parser) -> Parser:
    """A parser that gives each parser's action to the next; rewards add up.

    The first failure is the result, with its feedback and the rewards so far.

    >>> parse = compose_parsers(think_prefix_parser(), xml_tag_parser("move"))
    >>> parse("<think>left is blocked</think><move>right</move>")
    ParseResult(action='right', reward=0.0, feedback='')
    """
    if not parsers:
        raise ConfigError("compose_parsers needs at least one parser, got none")

    def parse(text: str) -> ParseResult:
        reward = 0.0
        for parser in parsers:
            result = parser(text)
            reward += result.reward
            if result.action is None:
                return ParseResult(None, reward, result.feedback)
            text = result.action
        return ParseResult(text, reward)

    return parse


def _parser(
    find: Callable[[str], str], feedback: str, success_reward: float, error_reward: float
) -> Parser:
    """A parser whose action is the text that `find` returns; "" is a failure."""
    # Made once: frozen, and the same for every reply that fails.
    failure = ParseResult(None, error_reward, feedback)

    def parse(text: str) -> ParseResult:
        content = find(text)
        return ParseResult(content, success_reward) if content else failure

    return parse


def _last_span(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> str:
    closes = [match.start() for match in closing.finditer(text)]
    if not closes:
        return ""
    # From the last closing tag backwards: a tag that is never closed must not hide an answer.
    opens = [match.end() for match in opening.finditer(text, 0, closes[-1])]
    if not opens:
        return ""
    # To the first closing tag after it: where one tag is in another of its name, the inner one.
    return text[opens[-1] : next(end for end in closes if end >= opens[-1])].strip()


def _exact_span(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> str:
    text = text.strip()
    opens, closes = list(opening.finditer(text)), list(closing.finditer(text))
    if len(opens) != 1 or len(closes) != 1:
        return ""
    whole = opens[0].start() == 0 and closes[0].end() == len(text)
    return text[opens[0].end() : closes[0].start()].strip() if whole else ""


def _balanced(text: str, start: int) -> str:
    depth = 1
    # An escaped brace is matched by the first alternative, and so not counted.
    for mark in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth == 0:
            return text[start : mark.start()].strip()
    return ""


def _objects(text: str) -> Iterator[dict[str, Any]]:
    position = failures = long_failures = 0
    while failures < _MOST_FAILURES and long_failures < _MOST_LONG_FAILURES:
        start = _OBJECT_START.search(text, position)
        if start is None:
            return
        # After an object the search continues behind it, so that the last one is never a part of
        # another.
        try:
            # `raw_decode` ends behind the object, so that any text may follow it.
            value, position = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError) as error:
            position = start.start() + 1
            failures += 1
            is_short = (
                isinstance(error, json.JSONDecodeError) and error.pos < position + _SHORT_FAILURE
            )
            long_failures += not is_short
            continue
        yield value


def _whole_object(text: str) -> Iterator[dict[str, Any]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict):
        yield value
