r"""Values that sentences state: the only one, that of the conclusion, or what follows a verb."""

import re

from ludic_gym.graders import latex
from ludic_gym.graders.extract import DOUBT
from ludic_gym.graders.numeric import changes_number, marked_number

# Answers in prose that marks them by no tag and no box.
_SPAN = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|\$([^$\n]+?)\$", re.DOTALL)
# Its name is no word of prose.
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s?\{[a-z]+\*?\}")
_WORD = re.compile(r"(?<!\\)\b(?!(?:pi|(?:arc)?(?:sin|cos|tan)|sqrt|log|ln|exp)\b)[A-Za-z]{2,}\b")
# Not the asterisks of a power.
_MARKUP = re.compile(r"<\|\w+\|>.*|(?<![\w)}])\*\*|\*\*(?![\w({-])|`", re.DOTALL)
_SENTENCE = re.compile(r"(?<=\.)\s+|(?<=[A-Za-z$][!?])\s+|\n+")
_CONCLUSION = re.compile(r"\b(?:therefore|thus|hence|so|final|finally|in total)\b", re.IGNORECASE)
_VERB = re.compile(r"\b(?:is|are|equals|get|gives|be|by)(?![a-z])|:(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?<![\w.,/])[-\u2212]?[$€£]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?%?(?![\w/^])"
)
_PUNCTUATION = re.compile(r"[.,:;!\s]+$")


def stated_values(text: str, *, is_marked: bool = False) -> list[str]:
    r"""The values that a text states: itself if it has no prose, else those of its conclusion.

    A text with prose states its only expression in $...$, its only number, or what follows the
    verb of its last sentence with "therefore", "so" or similar; if it is marked as the answer, what
    its first sentence says. [] if there is none, or if it contains words of doubt.

    >>> [*map(stated_values, ("x + 1", "The sum is $x + 1$.", "Thus she has 18 apples."))]
    [['x + 1'], ['x + 1'], ['18']]
    >>> stated_values("It is $3$ or $4$."), stated_values("Not 18, I think.")
    ([], [])
    """
    text = _MARKUP.sub("", text).strip()
    outside = _ENVIRONMENT.sub(" ", _SPAN.sub(" ", text))
    if not _WORD.search(outside) or marked_number(text) is not None:
        return [text.rstrip(" .")]
    if is_marked and len(sentences := _SENTENCE.split(text)) > 1:
        return stated_values(sentences[0], is_marked=True)
    if DOUBT.search(outside):
        # It may still be a list of values, or a truth with such words.
        return [text] if len(_WORD.findall(outside)) <= 1 else []
    if is_marked and (values := _values_after_verb(text)):
        return values
    if len(spans := _spans(text)) == 1:
        return spans
    if not spans and len(numbers := _numbers(text)) == 1:
        return numbers
    return final_values(text) or [text]


def final_values(text: str) -> list[str]:
    """The values after the verb of the last sentence with "therefore", "so" or similar, or []."""
    for sentence in reversed(_SENTENCE.split(_MARKUP.sub("", text))):
        if _CONCLUSION.search(sentence):
            return [] if DOUBT.search(_SPAN.sub(" ", sentence)) else _values_after_verb(sentence)
    return []


def _values_after_verb(sentence: str) -> list[str]:
    after = _VERB.split(_PUNCTUATION.sub("", sentence))[-1]
    return _spans(after) or _numbers(after)


def _spans(text: str) -> list[str]:
    return _distinct(["".join(match) for match in _SPAN.findall(text)])


def _numbers(text: str) -> list[str]:
    """The numbers of the text, unless words change one of them."""
    return [] if changes_number(text) else _distinct(_NUMBER.findall(text))


def _distinct(values: list[str]) -> list[str]:
    return list({latex.plain(value): value.strip() for value in values}.values())
