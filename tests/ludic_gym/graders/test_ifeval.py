"""Every kind of instruction of IFEval, with replies that follow it and replies that do not."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import DataError, GraderError
from ludic_gym.graders.ifeval import (
    KINDS,
    Instruction,
    instruction,
    instructions_followed,
    sentence_count,
)

LESS, LEAST = {"relation": "less than"}, {"relation": "at least"}
PARAGRAPHS = "length_constraints:number_paragraphs"
FIRST_WORD = "length_constraints:nth_paragraph_first_word"
BULLETS = "detectable_format:number_bullet_lists"
HIGHLIGHTS = "detectable_format:number_highlighted_sections"
SECTIONS = "detectable_format:multiple_sections"
POSTSCRIPT = "detectable_content:postscript"
OPTION = "detectable_format:constrained_response"
# Kind, arguments, texts that follow, texts that do not.
CASES = [
    ("keywords:existence", {"keywords": ["sea", "sun"]}, ["Sunny seas"], ["the sea", "son, seal"]),
    # A keyword is no pattern.
    ("keywords:existence", {"keywords": ["a.c"]}, ["A.C"], ["abc"]),
    ("keywords:frequency", {"keyword": "cat", "frequency": 2, **LEAST}, ["Cat, concat"], ["a cat"]),
    ("keywords:frequency", {"keyword": " cat ", "frequency": 2, **LESS}, ["a cat"], ["cats cat"]),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["cat"]},
        ["concatenate"],
        ["A Cat!", "cat's eye"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "T", "let_frequency": 2, "let_relation": "at least"},
        ["Total"],
        ["tree"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "#", "let_frequency": 1, "let_relation": "less than"},
        ["none"],
        ["# one"],
    ),
    ("length_constraints:number_words", {"num_words": 3, **LEAST}, ["a b c", "it's so"], ["a b"]),
    # A hyphen and an apostrophe divide words.
    ("length_constraints:number_words", {"num_words": 2, **LESS}, ["word"], ["well-known"]),
    (PARAGRAPHS, {"num_paragraphs": 2}, ["a***b", "***\na\n***\nb\n***"], ["a\n\nb", "a***"]),
    # An empty paragraph in the middle breaks it, and so do six asterisks.
    (PARAGRAPHS, {"num_paragraphs": 3}, ["a***b***c"], ["a***b******c", "a*** ***b***c"]),
    (
        FIRST_WORD,
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Sea"},
        ["a\n\nsea.side", 'a\n\n"Sea, b', "a\n\n'\"sea'"],
        ["sea\n\na", "a\n\nseas", "a\n\nsea\n\nb", "a\n\n\n\nsea", "a\n\n\"'sea", "a"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["[a] [b]", "[] [x]", "[[a] b]]] [c]"],
        ["[a]", "[a\nb] [c]", "]a[ [b]"],
    ),
    (POSTSCRIPT, {"postscript_marker": "P.S."}, ["x p.s. y", "P. S. y"], ["PS y", "p.s y"]),
    (POSTSCRIPT, {"postscript_marker": "P.P.S"}, ["p.p.s", "P. P. S more"], ["P.S."]),
    (POSTSCRIPT, {"postscript_marker": "N.B."}, ["n.b. y"], ["nobo"]),
    (
        BULLETS,
        {"num_bullets": 2},
        ["* a\n* b", " * a\n- b", "*a\n-"],
        ["* a", "**a\n* b", "*\n* a"],
    ),
    (BULLETS, {"num_bullets": 1}, ["*\nline", "-"], ["*", "a\n *"]),
    (OPTION, {}, ["My answer is yes.", "So: My answer is maybe. OK"], ["my answer is yes.", "yes"]),
    (HIGHLIGHTS, {"num_highlights": 2}, ["*a* *b*", "**a** *b*"], ["**a b**", "* *x", "*a\nb* *c"]),
    (
        SECTIONS,
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb", "Section1 Section2"],
        ["Section 1", "section 1 section 2", "Section X Section Y"],
    ),
    ("detectable_format:json_format", {}, ['{"a": 1}', "```json\n[1]\n```", "3"], ["{a}", "x {}"]),
    ("detectable_format:json_format", {}, ["```JSON[]```"], ["[" * 10**5, "```\n```"]),
    ("detectable_format:title", {}, ["<<a>>", "x <<<b>>> y"], ["<<>>", "<< >>", "<a>", "<<a\n>>"]),
    ("combination:two_responses", {}, ["a******b", "******a******b"], ["a******a", "a***b"]),
    (
        "combination:two_responses",
        {},
        ["a\n******\nb******"],
        ["a******b******c", "a****** ******b"],
    ),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Say hi."},
        ["say HI. Hi!", " Say hi."],
        ["Hi! Say hi."],
    ),
    (
        "startend:end_checker",
        {"end_phrase": "The end."},
        ['"... the END."', "The end. "],
        ["the end"],
    ),
    ("startend:quotation", {}, ['"a"', ' "" '], ['"', "'a'", "\u201ca\u201d", 'a"']),
    ("punctuation:no_comma", {}, ["a; b"], ["a, b"]),
]
CAPITALS = "change_case:capital_word_frequency"
WITH_NLTK = [
    (
        CAPITALS,
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["AN APPLE is", "I am OK.", "I DON'T"],
        ["An apple", "A b", "1 2"],
    ),
    (CAPITALS, {"capital_frequency": 2, "capital_relation": "less than"}, ["HI you"], ["I AM."]),
]
ENGLISH = "this is a short text about the weather in the north of england."
WITH_LANGDETECT = [
    (
        "language:response_language",
        {"language": "de"},
        ["Das Wetter ist heute sehr gut und wir gehen in den Wald.", "1 2 3"],
        [ENGLISH],
    ),
    # Without letters there is no language, but no case either.
    ("change_case:english_lowercase", {}, [ENGLISH], [ENGLISH.title(), "das wetter ist gut", "1"]),
    ("change_case:english_capital", {}, [ENGLISH.upper()], [ENGLISH, "1"]),
]
WITH_PUNKT = [
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, **LEAST},
        ["One. Two.", "Is it? Yes!"],
        ["Mr. Smith came.", "3.5 is one."],
    ),
    ("length_constraints:number_sentences", {"num_sentences": 2, **LESS}, ["One."], ["A b. C d."]),
]


def check(kind, arguments, good, bad):
    rule = [instruction(kind, arguments)]
    assert [text for text in good if not instructions_followed(text, rule)[0]] == []
    assert [text for text in bad if instructions_followed(text, rule)[0]] == []
    # A reply that follows it is also followed loosely.
    assert all(instructions_followed(text, rule, loose=True)[0] for text in good)
    assert instructions_followed(" \n", rule) == (False,)


@pytest.mark.parametrize(("kind", "arguments", "good", "bad"), CASES)
def test_a_kind(kind, arguments, good, bad):
    check(kind, arguments, good, bad)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "arguments", "good", "bad"), WITH_NLTK)
def test_words_in_capitals(kind, arguments, good, bad):
    pytest.importorskip("nltk")
    check(kind, arguments, good, bad)


@pytest.mark.parametrize(("kind", "arguments", "good", "bad"), WITH_LANGDETECT)
def test_languages(kind, arguments, good, bad):
    pytest.importorskip("langdetect", reason="pip install 'ludic-gym[ifeval]'")
    check(kind, arguments, good, bad)


@pytest.mark.parametrize(("kind", "arguments", "good", "bad"), WITH_PUNKT)
def test_sentences(kind, arguments, good, bad):
    pytest.importorskip("nltk")
    try:
        sentence_count("x", {})
    except GraderError as error:
        pytest.skip(str(error))
    check(kind, arguments, good, bad)


def test_there_are_25_kinds_and_each_is_tried():
    tried = {kind for kind, *_ in CASES + WITH_NLTK + WITH_LANGDETECT + WITH_PUNKT}
    assert tried == set(KINDS)
    assert len(KINDS) == 25


# The published patterns, of which some take quadratic time.
PUBLISHED = {
    BULLETS: lambda t: (
        len(re.findall(r"^\s*\*[^\*].*$", t, re.M)) + len(re.findall(r"^\s*-.*$", t, re.M))
    ),
    "detectable_content:number_placeholders": lambda t: len(re.findall(r"\[.*?\]", t)),
    SECTIONS: lambda t: len(re.split(r"\s?Section\s?\d+\s?", t)) - 1,
    HIGHLIGHTS: lambda t: (
        sum(bool(h.strip("*").strip()) for h in re.findall(r"\*[^\n\*]*\*", t))
        + sum(
            bool(h.removeprefix("**").removesuffix("**").strip())
            for h in re.findall(r"\*\*[^\n\*]*\*\*", t)
        )
    ),
}
COUNTS = {
    BULLETS: "num_bullets",
    "detectable_content:number_placeholders": "num_placeholders",
    SECTIONS: "num_sections",
    HIGHLIGHTS: "num_highlights",
}
PIECES = ["*", "**", "-", "[", "]", "<<", ">>", ">", "Section", " ", "\n", "a", "1", "\t", "\u2028"]
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@pytest.mark.parametrize("kind", PUBLISHED)
@given(text=texts)
def test_counts_are_those_of_the_published_patterns(kind, text):
    count = PUBLISHED[kind](text)
    given = {COUNTS[kind]: count, "section_spliter": "Section"}
    assert KINDS[kind].check(text, given)
    # One more is too many, for kinds with a least number and for those with an exact one.
    assert not KINDS[kind].check(text, {**given, COUNTS[kind]: count + 1})


@given(texts)
def test_titles_and_paragraphs_are_those_of_the_published_patterns(text):
    titles = re.findall(r"<<[^\n]+>>", text)
    expected = any(title.lstrip("<").rstrip(">").strip() for title in titles)
    assert KINDS["detectable_format:title"].check(text, {}) == expected
    parts = re.split(r"\s?\*\*\*\s?", text)
    blank = [i for i, part in enumerate(parts) if not part.strip()]
    inside = any(i not in (0, len(parts) - 1) for i in blank)
    expected = not inside and len(parts) - len(blank) == 2
    assert KINDS[PARAGRAPHS].check(text, {"num_paragraphs": 2}) == expected


def test_loose_tries_the_reply_without_its_ends_and_asterisks():
    rule = [Instruction("startend:quotation"), Instruction("punctuation:no_comma")]
    reply = 'Sure, here it is:\n*"A text"*'
    assert instructions_followed(reply, rule) == (False, False)
    assert instructions_followed(reply, rule, loose=True) == (True, True)
    # Each instruction may be followed by another version.
    assert instructions_followed('"a, b"\nc', rule, loose=True) == (True, True)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("no:such", {}, "no kind of instruction 'no:such'"),
        ("keywords:existence", {"keywords": []}, "needs keywords, a list of texts, got []"),
        ("keywords:existence", {"keywords": [""]}, r"got \[''\]"),
        ("keywords:frequency", {"keyword": "a", "frequency": 1}, "needs relation"),
        (
            "length_constraints:number_words",
            {"num_words": 3, "relation": "around"},
            '"less than" or "at least", got \'around\'',
        ),
        (PARAGRAPHS, {"num_paragraphs": True}, "a whole number, got True"),
        (FIRST_WORD, {"num_paragraphs": 1, "nth_paragraph": 0, "first_word": "a"}, "got 0"),
    ],
)
def test_arguments_that_cannot_work_are_named(kind, arguments, message):
    with pytest.raises(DataError, match=message.replace("[]", r"\[\]")):
        instruction(kind, arguments)


def test_numbers_of_tables_with_gaps_are_whole():
    rule = [instruction(PARAGRAPHS, {"num_paragraphs": 2.0, "letter": None})]
    assert instructions_followed("a***b", rule) == (True,)


def test_hostile_replies_take_no_quadratic_time():
    pieces = ["[", "<<", "*", "\n", " ", "Section ", '"', "* *\n"]
    given = {
        "num_placeholders": 1, "num_bullets": 1, "num_highlights": 1, "num_sections": 1,
        "section_spliter": "Section", "num_paragraphs": 1, "postscript_marker": "P.S.",
        "num_words": 1, "nth_paragraph": 1, "first_word": "a", **LEAST,
    }  # fmt: skip
    kinds = [*PUBLISHED, PARAGRAPHS, FIRST_WORD, POSTSCRIPT, "detectable_format:title"]
    start = time.process_time()
    for kind in kinds:
        for piece in pieces:
            KINDS[kind].check(piece * 100_000, given)
    assert time.process_time() - start < 10
