"""Replies with a name or a few words, for the graders of equal words and of most words."""

from collections.abc import Iterator
from random import Random

from replies.layouts import Row

# Accepted answers, each with others that are no answer to its question.
NAMES = (
    ("New York City\nNew York\nNYC", "Boston"), ("Lake Victoria", "Lake Tanganyika"),
    ("the Eiffel Tower\nEiffel Tower", "the Louvre"),
    ("Battle of Hastings", "Battle of Agincourt"), ("Nile\nthe Nile", "Amazon"),
    ("Ada Lovelace", "Charles Babbage"), ("photosynthesis", "respiration"),
    ("Treaty of Tordesillas", "Treaty of Versailles"), ("salt and pepper", "salt and vinegar"),
    ("U.S.A.\nUnited States", "Canada"), ("café au lait", "espresso"), ("O'Brien", "Winston"),
    ("Jean-Paul Sartre", "Albert Camus"), ("type O", "type B"), ("carbon dioxide\nCO2", "oxygen"),
    ("Mount Everest\nEverest", "K2"), ("World War II", "World War I"), ("Apollo 11", "Apollo 13"),
    ("William Shakespeare\nShakespeare", "Christopher Marlowe"),
    ("red blood cells", "white blood cells"),
)  # fmt: skip
# Numbers as texts: the same in other layouts, and others.
AMOUNTS = (
    ("1,200", ("1200", "1,200", "1,200.", "**1200**", "1200 "), ("12,00", "1.200", "200", "1,201")),
    ("$1,200", ("$1,200", "1200 dollars", "1,200", "$1200", "US$1,200"),
     ("€1,200", "$12", "$1,200,000")),
    ("3.5 million", ("3.5 million", "3.5 Million", "3.5 million."),
     ("35 million", "3.5", "3.5 billion")),
    ("12%", ("12%", "12 percent", "12 %"), ("12 dollars", "1.2%", "21%")),
    ("€45", ("€45", "45 euros", "45"), ("$45", "45 dollars", "£45")),
    ("1999", ("1999", "in 1999"[3:], "1999."), ("1998", "99", "1999-2000", "19,99")),
    ("-5", ("-5", "−5", "-5."), ("5", "-50", "+5")),
    ("1/2", ("1/2", "1/2."), ("12", "2/1", "1-2")),
    ("4:30", ("4:30", "4:30."), ("430", "4:03", "3:40")),
)  # fmt: skip
MARKS = (
    "<answer>{}</answer>", "{}", "The answer is {}.", r"\boxed{{{}}}", "Answer: {}",
    "**Answer:** {}", "<think>Is it {}?</think>\n<answer>{}</answer>", "So the answer is: {}",
    "**{}**", "The answer is **{}**.", "### Answer\n<answer>{}</answer>", "Final answer: {}",
    r"\boxed{{\text{{{}}}}}", "<answer>\n{}\n</answer>", "The correct answer is {}.",
)  # fmt: skip
SAME = ("{a}", "the {a}", "{a}.", "{u}", '"{a}"', " {a} ", "{a}!", "{l}", "“{a}”", "'{a}'", "*{a}*",
        "The {a}")  # fmt: skip
OTHER = (
    "{b}", "{a} or {b}", "{a}, {b}", "{a}/{b}", "{a} and {b}", "{a}; {b}", "not {a}",
    "{b}, not {a}", "{a} {b}", "{b} {a}", "neither {a}", "{a}? {b}", "{a} (or {b})",
    "either {a} or {b}", "I do not know", "{a}, I think", "anything but {a}", "no {a}", "{a} 7",
    "",
)  # fmt: skip


def names(grader: str, r: Random) -> Iterator[Row]:
    """Each name in every layout, and replies that are no answer."""
    for forms, right in ((SAME, True), (OTHER, False)):
        for form in forms:
            for accepted, other in r.sample(NAMES, 8):
                a = r.choice(accepted.splitlines())
                text = form.format(a=a, b=other, u=a.upper(), l=a.lower())
                reply = r.choice(MARKS).replace("{}", text).replace("{{", "{").replace("}}", "}")
                yield Row(grader, "names", reply, accepted, right)


def rows(r: Random) -> Iterator[Row]:
    """The same kinds for both graders."""
    for grader in ("exact", "f1"):
        yield from names(grader, r)
        for truth, same, other in AMOUNTS:
            for answer in (*same, *other):
                mark = r.choice(MARKS[:3])
                yield Row(grader, "amounts", mark.format(answer, answer), truth, answer in same)
