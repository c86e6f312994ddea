r"""Extraction of the answer from a reply: after `</think>`, in tags, in a box, or at the end."""

import re
from dataclasses import dataclass

from ludic_gym.reader import divided

LONGEST = 1000
# Bounded: otherwise each of many tags that are never closed would be followed to the end.
_TAG = re.compile(rf"<answer>(.{{1,{LONGEST}}}?)</answer>", re.IGNORECASE | re.DOTALL)
_PHRASE = re.compile(
    r"\banswer(?: is\b|\s?:|\s?=)(?:\s(?:therefore|thus|hence|then|simply)\b)?", re.IGNORECASE
)
# The beginning of a tag's content, before the answer.
_LEAD = re.compile(
    r"(?:(?:thus|so|therefore|hence),?\s)?(?:(?:the|my)\s)?(?:(?:final|correct)\s)?answer"
    r"(?:\s?[:=]|\sis\b:?)\s*(?=\S)",
    re.IGNORECASE,
)
# The beginning of a sentence or line that says a value.
_SAID = re.compile(
    r"\$?(?:\\text\s?\{)?\s*(?:[A-Za-z][A-Za-z',*_ -]{0,80}?"
    r"\b(?:is|are|was|were|be|equals?|has|have|had|gives?|gets?|makes?|needs?|pays?|costs?|earns?|spends?|owes?|takes?|saves?|sells?|buys?)"
    r"\b:?|[A-Za-z][A-Za-z' ]{1,40}:)\s*\}?\s*(?=\S)",
    re.IGNORECASE,
)
DOUBT = re.compile(
    r"\b(?:or|either|neither|nor|not|isn't|maybe|perhaps|possibly|probably|might|could|guess|unsure"
    r"|wrong|incorrect|false|unknown|cannot|can't|think|unless)\b|\?",
    re.IGNORECASE,
)
_UNBRACED = re.compile(r"\A(?:[-+]?\d+(?:[.,]\d+)*|[A-Z](?![A-Za-z]))")
# A reply that marks more than this many has no answer.
_MOST = 50


def extract(text: str) -> tuple[str | None, str]:
    r"""The answer, and the rule that found it; None where there is none.

    Text before `</think>` is ignored. The first rule that finds something decides:

        tag     <answer>18</answer>
        boxed   so the sum is \boxed{18}
        hashes  #### 18
        phrase  The answer is 18        (the rest of the line; also "answer:" and "answer =")
        bare    18                      (the whole text)

    Tags or boxes that differ are "ambiguous"; a thought that is not closed is "unfinished", and a
    blank text, or an answer of more than `LONGEST` characters, is "none".

    >>> extract("<think>9 or 18?</think>Twice nine, so the answer is 18")
    ('18', 'phrase')
    >>> extract("<answer>18</answer> or <answer>20</answer>")
    (None, 'ambiguous')
    """
    answers, rule = found_answers(text)
    if not answers:
        return None, rule
    return _only(answers, rule)


def found_answers(text: str, question: str = "") -> tuple[list[str], str]:
    r"""All answers that the deciding rule of `extract` finds, in order, and the rule.

    question: boxes that it contains do not count, unless the reply has no others.

    >>> found_answers(r"\boxed{1}, \boxed{2}")
    (['1', '2'], 'boxed')
    >>> found_answers(r"\boxed{?} is \boxed{2}", r"Fill in: 1 + \boxed{?} = 3")
    (['2'], 'boxed')
    """
    reply, rule = after_thought(text)
    if reply is None:
        return [], rule
    # Many opening tags without a closing one would take quadratic time.
    if "</" in reply and reply.count("<answer>") <= _MOST and (tags := _TAG.findall(reply)):
        return _checked([_bare_content(tag) for tag in tags], "tag")
    # Before "####" and the phrase, which models also write on the way to a boxed result.
    if boxes := boxed(reply):
        asked = {_dense(box) for box in boxed(question)} if question else ()
        return _checked([box for box in boxes if _dense(box) not in asked] or boxes, "boxed")
    if "####" in reply:
        return _checked([first_line(reply.rpartition("####")[2])], "hashes")
    if (rest := after_phrase(reply)) is not None:
        return _checked([first_line(rest)[:LONGEST]], "phrase")
    return _checked([reply], "bare")


def after_thought(text: str) -> tuple[str | None, str]:
    """The text after `</think>`, and "bare"; or None, and "unfinished" or "none".

    >>> after_thought("<think>Nine and nine ...</think> 18")
    ('18', 'bare')
    >>> after_thought("<think>Nine and")
    (None, 'unfinished')
    """
    thought, reply = divided(text)
    reply = reply.strip()
    # A word after a thought that is not closed belongs to it.
    if "<think>" in reply or (thought and not divided(f"{thought}word")[1]):
        return None, "unfinished"
    return (reply, "bare") if reply else (None, "none")


def after_phrase(text: str) -> str | None:
    """The text after the last "the answer is", "answer:" or "answer ="; None without one.

    >>> after_phrase("The answer is 17. No, the ANSWER = 18")
    ' 18'
    """
    lower = text.lower()
    # To the expression the long s is an s, and the lower case of one letter is longer than itself.
    if "ſ" in text or len(lower) != len(text):
        pieces = _PHRASE.split(text)
        return pieces[-1] if len(pieces) > 1 else None
    # A search for a fixed text is ten times as fast as the expression, and starts at the end.
    place = lower.rfind("answer")
    while place >= 0:
        if match := _PHRASE.match(text, place):
            return text[match.end() :]
        place = lower.rfind("answer", 0, place)
    return None


def without_lead(text: str) -> str:
    r"""The value that a sentence or a line says, or the text itself; see `_SAID`.

    >>> without_lead("She has 18 dollars left."), without_lead("Area: 12"), without_lead("18")
    ('18 dollars left.', '12', '18')
    >>> without_lead("The answer is not 18"), without_lead("It might be 18")
    ('not 18', 'It might be 18')
    """
    said = _SAID.match(text)
    return text if said is None or DOUBT.search(said[0]) else text[said.end() :]


def _bare_content(tag: str) -> str:
    r"""The content of a tag without "The answer is" before it, or the box that all of it is."""
    content = tag.strip()
    lead = _LEAD.match(content)
    content = content[lead.end() :] if lead else content
    box = content.strip("$. \n")
    if box.startswith("\\boxed") and len(inside := boxed(box)) == 1:
        return inside[0] if box.endswith(f"{inside[0]}}}") else content
    return content


def boxed(text: str) -> list[str]:
    r"""The contents of every closed `\boxed{...}`; unclosed ones are ignored.

    Without a brace, a number or a capital letter is the content. Empty for more than 50 boxes. A
    box of more than `LONGEST` characters counts as unclosed.

    >>> boxed(r"\boxed{\frac{1}{2}} and \boxed{3"), boxed(r"$\boxed 7$")
    (['\\frac{1}{2}'], ['7'])
    """
    pieces = text.split("\\boxed")[1:]
    if not 0 < len(pieces) <= _MOST:
        return []
    starts = (piece[: LONGEST + 2].lstrip() for piece in pieces)
    contents = (
        braced(start) if start[:1] == "{" else "".join(_UNBRACED.findall(start)) for start in starts
    )
    return [content for content in contents if content]


def braced(text: str) -> str | None:
    """The content of the brace that opens the text, or None if it is not closed."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[1:i]
    return None


def first_line(text: str) -> str:
    r"""The next line that is not blank, without a leading colon.

    >>> first_line(":\n 18 apples\nThat is all")
    '18 apples'
    """
    return text[: 2 * LONGEST].lstrip(" :\n").partition("\n")[0].rstrip()


def _only(answers: list[str], rule: str) -> tuple[str | None, str]:
    """The common answer, or None and "ambiguous" if they differ in more than white space."""
    if len(set(map(_dense, answers))) > 1:
        return None, "ambiguous"
    return answers[-1], rule


def _dense(text: str) -> str:
    """The text without white space."""
    return "".join(text.split())


def _checked(answers: list[str], rule: str) -> tuple[list[str], str]:
    """The answers without outer white space, or [] and "none" if one is blank or too long."""
    answers = [answer.strip() for answer in answers]
    return (
        (answers, rule) if all(0 < len(answer) <= LONGEST for answer in answers) else ([], "none")
    )


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict on one answer.

    correct: True if the answer has the value of the truth, or keeps what it demands.
    answer: the extracted answer, or None if there is none.
    rule: the name of the rule that found it; each grader has its own.
    """

    correct: bool
    answer: str | None
    rule: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """Subject of a grade.

    question: the observation that the answer replies to.
    answer: the reply, its thought included.
    truth: the grader's truth, "" if it is unknown.
    """

    question: str
    answer: str
    truth: str = ""
