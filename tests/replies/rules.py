"""Replies to instructions, and to questions that published rules grade."""

import json
from collections.abc import Iterator
from random import Random

from replies.layouts import Row

WORDS = (
    "tea", "river", "stone", "quiet", "morning", "blue", "table", "lamp", "garden", "cloud",
    "paper", "window", "bread",
)  # fmt: skip


def texts(r: Random) -> Iterator[tuple[dict[str, object], str, bool]]:
    """A constraint, a text, and True if the text keeps it by the way it is made."""
    for count in (1, 3, 5, 8, 12):
        some = [" ".join(r.sample(WORDS, n)) for n in (count, count + 1, max(count - 1, 0))]
        for kind, allowed in (("words_at_most", (0, 2)), ("words_at_least", (0, 1))):
            for i, text in enumerate(some):
                if text:
                    yield {"kind": kind, "count": count}, f"{text.capitalize()}.", i in allowed
    for _ in range(6):
        word, other, *rest = r.sample(WORDS, 6)
        text = " ".join(rest)
        yield {"kind": "keywords", "texts": [word]}, f"{text} {word.upper()}!", True
        yield {"kind": "keywords", "texts": [word]}, f"{text} {word}like.", False
        yield {"kind": "keywords", "texts": [word, other]}, f"{text} {word}", False
        yield {"kind": "forbidden", "texts": [word]}, f"{text} {word}, {other}", False
        yield {"kind": "forbidden", "texts": [word]}, f"{text} {word}like {other}", True
        yield {"kind": "no_commas"}, f"{text}; {word}", True
        yield {"kind": "no_commas"}, f"{text}, {word}", False
        yield {"kind": "title"}, f"<<{word} {other}>>\n{text}", True
        yield {"kind": "title"}, f"<{word}> {text}", False


# The reply, the letter by the published rule of MMLU-Pro; {a} and {b} are two letters.
MMLU_PRO = (
    ("The answer is ({a}).", "{a}"), ("So the answer is {a}.", "{a}"), ("Answer: {a}", "{a}"),
    ("answer:  {a}", "{a}"), ("{b} is small. The answer is ({a}).", "{a}"), ("**{a}**", "{a}"),
    ("({b}) or ({a})", "{a}"), ("The answer is ({b}). No, the answer is ({a}).", "{b}"),
    ("I do not know.", None), ("none of them", None),
)  # fmt: skip
GPQA = (
    ("The correct answer is ({a})", "{a}"), ("Answer: ({a})", "{a}"), ("answer: ({a})", "{a}"),
    ("({b}) is wrong. The correct answer is ({a}).", "{a}"), ("The answer ({a})", "{a}"),
    ("({a})", "{a}"), ("{a}", None), ("Option {a}", None), ("I do not know.", None),
)  # fmt: skip


def rows(r: Random) -> Iterator[Row]:
    """Rows of constraints, bare and after a thought, and of two published rules."""
    for constraint, text, right in texts(r):
        truth = json.dumps([{"count": 0, "texts": [], **constraint}])
        for reply in (text, f"<think>Many words, and commas.</think>\n{text}"):
            yield Row("constraints", str(constraint["kind"]), reply, truth, right)
    for grader, rules in (("mmlu_pro", MMLU_PRO), ("gpqa", GPQA)):
        for text, letter in rules:
            for a, b in (r.sample("ABCD", 2) for _ in range(4)):
                read = letter and letter.format(a=a, b=b)
                for truth in (a, b):
                    yield Row(grader, "letters", text.format(a=a, b=b), truth, read == truth)
