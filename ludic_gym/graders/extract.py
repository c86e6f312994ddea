r"""Extraction of the answer from a reply: after `</think>`, in tags, in a box, or at the end."""

import re
from dataclasses import dataclass

LONGEST = 1000
_TAG = re.compile(rf"<answer>(.{{1,{LONGEST}}}?)</answer>", re.IGNORECASE | re.DOTALL)
PHRASE = re.compile(r"\banswer(?: is\b|\s?:|\s?=)", re.IGNORECASE)
# A reply with more marked answers than this has none.
_MOST = 50


def extract(text: str) -> tuple[str | None, str]:
    r"""The answer, and the rule that found it; None where there is none.

    Text before `</think>` is ignored. The first rule that finds something decides: "tag"
    (`<answer>`), "boxed" (`\boxed`), "hashes" (`####`), "phrase" (the rest of the line after "the
    answer is"), "bare" (the whole text). Tags or boxes that differ are "ambiguous"; a thought that
    is not closed is "unfinished", and a blank text is "none".
    """
    reply, rule = after_thought(text)
    if reply is None:
        return None, rule
    # Many opening tags without a closing one would take quadratic time.
    if "</" in reply and reply.count("<answer>") <= _MOST and (tags := _TAG.findall(reply)):
        return _only(tags, "tag")
    if boxes := boxed(reply):
        return _only(boxes, "boxed")
    if "####" in reply:
        return _checked(first_line(reply.rpartition("####")[2]), "hashes")
    if len(pieces := PHRASE.split(reply)) > 1:
        return _checked(first_line(pieces[-1]), "phrase")
    return _checked(reply, "bare")


def after_thought(text: str) -> tuple[str | None, str]:
    """The text after `</think>`, and "bare"; or None, and "unfinished" or "none"."""
    _, closed, reply = text.rpartition("</think>")
    if not closed and "<think>" in reply:
        return None, "unfinished"
    reply = reply.strip()
    return (reply, "bare") if reply else (None, "none")


def boxed(text: str) -> list[str]:
    r"""The contents of every closed `\boxed{...}`; unclosed ones are ignored."""
    pieces = text.split("\\boxed")[1:]
    if len(pieces) > _MOST:
        return []
    return [inside for piece in pieces if (inside := _braced(piece[: LONGEST + 2].lstrip()))]


def _braced(text: str) -> str | None:
    """The content of the brace that opens the text, or None if it is not closed."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[1:i]
    return None


def first_line(text: str) -> str:
    """The next line that is not blank, without a leading colon."""
    return text[: 2 * LONGEST].lstrip(" :\n").partition("\n")[0].rstrip()


def _only(answers: list[str], rule: str) -> tuple[str | None, str]:
    """The common answer, or None and "ambiguous" if they differ."""
    if len({"".join(answer.split()) for answer in answers}) > 1:
        return None, "ambiguous"
    return _checked(answers[-1], rule)


def _checked(answer: str, rule: str) -> tuple[str | None, str]:
    answer = answer.strip()
    return (answer, rule) if 0 < len(answer) <= LONGEST else (None, "none")


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict on one answer.

    answer: the extracted answer, or None if there is none.
    rule: the name of the rule that found it; each grader has its own.
    """

    correct: bool
    answer: str | None
    rule: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """Subject of a grade: a question, the reply to it, and the truth, "" if it is unknown."""

    question: str
    answer: str
    truth: str = ""
